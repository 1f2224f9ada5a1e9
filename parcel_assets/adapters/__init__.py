"""One file = one port and one technology, named port_technology."""
