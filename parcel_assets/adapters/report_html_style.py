"""The report's look: one style sheet for screens light and dark, narrow windows and paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1c2430; --soft: #5b6675; --faint: #8b95a3;
  --line: #e3e0d8; --wash: #f2f0ea; --accent: #1f5f8b; --accent-wash: #e3eef5;
  --good: #1d7a4f; --good-wash: #e0f2e8; --bad: #b3362b; --bad-wash: #fbe6e3;
  --wait: #96690a; --wait-wash: #fdf1d3; --quiet: #a7b0bb; --quiet-2: #cdd3da;
  --mono: ui-monospace, "SFMono-Regular", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --card: #1a2029; --ink: #e8ebf0; --soft: #a5afbc; --faint: #7c8796;
    --line: #2b333e; --wash: #20272f; --accent: #76b6e0; --accent-wash: #1c3243;
    --good: #63c797; --good-wash: #17342a; --bad: #f0897d; --bad-wash: #40211f;
    --wait: #e6bb5c; --wait-wash: #3a2f16; --quiet: #5f6b79; --quiet-2: #3d4752;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 1080px; margin: 0 auto; padding: 28px 22px 80px; }
h1, h2, h3 { line-height: 1.2; text-wrap: balance; margin: 0; }
h1 { font-size: clamp(1.55rem, 1.1rem + 2vw, 2.3rem); letter-spacing: -.015em; font-weight: 680; }
h2 { font-size: 1.38rem; letter-spacing: -.01em; margin: 0 0 4px; font-weight: 660; }
h3 { font-size: .8rem; text-transform: uppercase; letter-spacing: .075em; color: var(--soft);
  font-weight: 640; margin-bottom: 12px; }
p { margin: 0 0 .7em; text-wrap: pretty; }
a { color: var(--accent); text-underline-offset: 2px; }
code, .mono { font-family: var(--mono); font-size: .86em; overflow-wrap: anywhere; }
pre { background: var(--wash); border-radius: 8px; padding: 14px 16px; overflow-x: auto;
  font: 13px/1.6 var(--mono); margin: 0 0 1em; }
.over { color: var(--soft); font-size: .92rem; margin-bottom: 10px; }
.lead { font-size: 1.06rem; max-width: 72ch; }
.soft { color: var(--soft); }
.small { font-size: .87rem; }
section { margin-top: 46px; }
section > .about { color: var(--soft); max-width: 76ch; margin-bottom: 16px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 18px 0 0; font-size: .9rem; }
nav a { color: var(--soft); text-decoration: none; border-bottom: 1px solid var(--line); }
nav a:hover { color: var(--accent); border-color: var(--accent); }

.verdict { border-radius: 14px; padding: 20px 24px; margin: 20px 0 18px; border: 1px solid;
  border-left-width: 7px; }
.verdict .word { font-size: clamp(1.25rem, 1rem + 1.5vw, 1.8rem); font-weight: 700;
  letter-spacing: -.01em; display: flex; align-items: center; gap: 12px; }
.verdict p { margin: 6px 0 0; max-width: 80ch; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.verdict.good { background: var(--good-wash); border-color: var(--good); }
.verdict.bad { background: var(--bad-wash); border-color: var(--bad); }
.verdict.wait { background: var(--wait-wash); border-color: var(--wait); }
.verdict p { color: var(--ink); }
.mark { width: 1.15em; height: 1.15em; flex: none; }

.cards { display: grid; grid-template-columns: repeat(12, 1fr); gap: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 18px 20px 14px; grid-column: span 6; min-width: 0; display: flex;
  flex-direction: column; }
.card.wide { grid-column: span 12; }
.card .foot { margin-top: auto; padding-top: 12px; font: 11px/1.5 var(--mono);
  color: var(--faint); overflow-wrap: anywhere; }
.card .foot a { color: inherit; }
.big { font-size: 1.9rem; font-weight: 680; letter-spacing: -.02em; line-height: 1.15; }
.big small { font-size: .95rem; font-weight: 500; color: var(--soft); letter-spacing: 0; }
.figures { display: flex; flex-wrap: wrap; gap: 14px 30px; margin-bottom: 12px; }
.figure .label { font-size: .82rem; color: var(--soft); }
.figure .value { font-size: 1.28rem; font-weight: 640; letter-spacing: -.01em; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .88rem; margin: 10px 0 4px;
  padding: 0; list-style: none; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px;
  margin-right: 6px; vertical-align: -1px; }
.sum { font-size: .92rem; }

.chip { display: inline-block; border-radius: 999px; padding: 2px 10px; font-size: .76rem;
  font-weight: 680; letter-spacing: .03em; white-space: nowrap; }
.chip.good { background: var(--good-wash); } .chip.bad { background: var(--bad-wash); }
.chip.wait { background: var(--wait-wash); }
.chip.plain { background: var(--wash); color: var(--soft); font-weight: 560; }

.slices { list-style: none; margin: 0 0 8px; padding: 0; display: grid; gap: 0 36px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.slices li { display: grid; grid-template-columns: 112px 1fr; gap: 2px 12px; padding: 8px 0;
  border-top: 1px solid var(--line); font-size: .93rem; }
.slices .chip { justify-self: start; align-self: start; }

.chain { list-style: none; margin: 0; padding: 0 0 0 20px; border-left: 2px solid var(--line);
  font-size: .93rem; }
.chain li { position: relative; padding: 0 0 12px; }
.chain li::before { content: ""; position: absolute; left: -26px; top: 6px; width: 10px;
  height: 10px; border-radius: 50%; background: var(--card); border: 2px solid var(--quiet); }
.chain li.end::before { background: var(--accent); border-color: var(--accent); }
.chain li:last-child { padding-bottom: 0; }

.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: .8rem; }
th, td { padding: 7px 10px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
tr.won td { font-weight: 640; background: var(--accent-wash); }
tr.words td { border-bottom: 1px solid var(--line); padding-top: 0; color: var(--soft);
  font-size: .87rem; }
tr.joined td { border-bottom: 0; }
details { margin-top: 14px; }
summary { cursor: pointer; color: var(--accent); font-weight: 560; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }

figure { margin: 0 0 8px; }
figcaption { color: var(--soft); font-size: .88rem; margin-top: 8px; max-width: 78ch; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 540px), 1fr));
  gap: 28px; }
.pair img { width: 100%; max-width: 860px; }
figure img { max-width: 100%; height: auto; border-radius: 8px; border: 1px solid var(--line);
  display: block; background: var(--wash); image-rendering: auto; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
svg text.strong { fill: var(--ink); font-weight: 620; } svg text.tiny { font-size: 11px; }
svg text.good { fill: var(--good); } svg text.bad { fill: var(--bad); }
svg text.wait { fill: var(--wait); } svg text.accent { fill: var(--accent); font-weight: 620; }
.axis { stroke: var(--quiet-2); stroke-width: 1; fill: none; }
.grid { stroke: var(--line); stroke-width: 1; }
.dash { stroke: var(--faint); stroke-dasharray: 4 4; stroke-width: 1.2; fill: none; }
.curve { fill: none; stroke: var(--quiet); stroke-width: 1; opacity: .55; }
.curve.cut { stroke: var(--wait); opacity: .45; }
.curve.won { stroke: var(--accent); stroke-width: 2.6; opacity: 1; }
.curve.cost { stroke: var(--accent); stroke-width: 2; opacity: 1; }
.fill-accent { fill: var(--accent); } .fill-quiet { fill: var(--quiet); }
.fill-good { fill: var(--good); } .fill-bad { fill: var(--bad); } .fill-wait { fill: var(--wait); }
.fill-soft { fill: var(--quiet-2); } .fill-band { fill: var(--accent-wash); }
.fill-card { fill: var(--card); }
.stroke-accent { stroke: var(--accent); stroke-width: 2.4; fill: none; }
.stroke-quiet { stroke: var(--quiet); stroke-width: 2.4; fill: none; }
.stroke-good { stroke: var(--good); stroke-width: 2.4; fill: none; }
.stroke-bad { stroke: var(--bad); stroke-width: 2.4; fill: none; }
.stroke-wait { stroke: var(--wait); stroke-width: 2.4; fill: none; }
.ring { fill: none; stroke: var(--ink); stroke-width: 2; }
.b-completed { background: var(--good); } .b-pruned { background: var(--wait); }
.b-failed { background: var(--bad); } .b-quarantined { background: #8d5fbf; }
.b-expired { background: #8d5fbf; } .b-running { background: var(--accent); }
.b-waiting { background: var(--quiet-2); }
.f-completed { fill: var(--good); } .f-pruned { fill: var(--wait); } .f-failed { fill: var(--bad); }
.f-quarantined { fill: #8d5fbf; } .f-running { fill: var(--accent); }
.f-waiting { fill: var(--quiet-2); }
.b-search { background: var(--accent); } .b-rerun { background: var(--good); }
.b-reference { background: var(--wait); } .b-final { background: #8d5fbf; }
.b-left { background: var(--quiet-2); }
.f-search { fill: var(--accent); } .f-rerun { fill: var(--good); }
.f-reference { fill: var(--wait); } .f-final { fill: #8d5fbf; } .f-left { fill: var(--wash); }

.waiver { border: 1px solid var(--wait); background: var(--wait-wash); border-radius: 12px;
  padding: 18px 22px; margin-bottom: 18px; }
.waiver blockquote { margin: 8px 0 12px; font-size: 1.05rem; border-left: 3px solid var(--wait);
  padding-left: 14px; }
footer { margin-top: 56px; color: var(--faint); font-size: .85rem; border-top: 1px solid
  var(--line); padding-top: 14px; }

@media (max-width: 820px) {
  .card { grid-column: span 12; }
  main { padding: 18px 14px 60px; }
  .slices li { grid-template-columns: 1fr; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 8px; }
  .chart { min-width: 560px; }
}
@media print {
  :root {
    --paper: #fff; --card: #fff; --ink: #111; --soft: #444; --faint: #666; --line: #ccc;
    --wash: #f3f3f3; --accent: #1f5f8b; --accent-wash: #e3eef5; --good: #1d7a4f;
    --good-wash: #e0f2e8; --bad: #b3362b; --bad-wash: #fbe6e3; --wait: #96690a;
    --wait-wash: #fdf1d3; --quiet: #888; --quiet-2: #bbb;
  }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  nav { display: none; }
  section { margin-top: 26px; } h2, h3 { break-after: avoid; }
  .card, figure, .waiver, .verdict { break-inside: avoid; }
  details:not([open]) { display: none; }
}
"""
