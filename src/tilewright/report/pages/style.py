"""The style sheet of every page: light and dark, screen and print."""

from __future__ import annotations

# Ten colours that most colour-blind readers can distinguish, on light and on dark ground.
_LIGHT = (
    "#2f6fb3", "#d9772b", "#2e8b57", "#b5483f", "#7a5ab5",
    "#8a6d3b", "#c2558f", "#5f6b76", "#8c9a1e", "#1797a6",
)  # fmt: skip
_DARK = (
    "#6aa9e9", "#f0a060", "#5fc48c", "#e8837a", "#b096e8",
    "#c9aa74", "#e88fbe", "#a5b1bc", "#c3d14e", "#56cbd8",
)  # fmt: skip


def _palette(colours: tuple[str, ...]) -> str:
    return " ".join(f"--c{i}: {c};" for i, c in enumerate(colours))


_LIGHT_SCHEME = f"""
  --ground: #ffffff; --panel: #f6f7f9; --ink: #1d2329; --soft: #5b6672; --line: #dde2e7;
  --accent: #2f6fb3; --bad: #b5483f; --good: #2e8b57; --node: #ffffff;
  {_palette(_LIGHT)}
"""
_DARK_SCHEME = f"""
  --ground: #14181d; --panel: #1c2229; --ink: #e6eaee; --soft: #9aa6b2; --line: #323b45;
  --accent: #6aa9e9; --bad: #e8837a; --good: #5fc48c; --node: #232b34;
  {_palette(_DARK)}
"""

_CLASSES = "\n".join(
    f".c{i}.fill {{ fill: var(--c{i}); }} .c{i}.stroke {{ stroke: var(--c{i}); }} "
    f".c{i}.tint {{ fill: var(--c{i}); fill-opacity: 0.14; stroke: var(--c{i}); "
    f"stroke-opacity: 0.7; }} .c{i}.dot {{ background: var(--c{i}); }}"
    for i in range(10)
)

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT_SCHEME} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK_SCHEME} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
main {{ max-width: 1080px; margin: 0 auto; padding: 28px 22px 60px; }}
header {{ border-bottom: 1px solid var(--line); margin-bottom: 8px; padding-bottom: 14px; }}
h1 {{ font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }}
h2 {{ font-size: 18px; margin: 34px 0 10px; }}
h3 {{ font-size: 15px; margin: 18px 0 6px; }}
a {{ color: var(--accent); }}
p {{ margin: 6px 0; max-width: 75ch; }}
.soft {{ color: var(--soft); }}
.small {{ font-size: 13px; }}
code, pre, .nest {{ font-family: ui-monospace, "SF Mono", Consolas, "DejaVu Sans Mono",
  monospace; }}
pre {{ background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 12px 14px; overflow: auto; font-size: 13px; line-height: 1.45; margin: 8px 0; }}
.figures {{ display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0 6px; }}
.figure {{ background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 16px; min-width: 118px; }}
.figure b {{ display: block; font-size: 21px; line-height: 1.3; font-weight: 600; }}
.figure span {{ color: var(--soft); font-size: 13px; }}
.good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.scroll {{ overflow-x: auto; }}
.beside {{ display: flex; flex-wrap: wrap; gap: 14px 28px; align-items: flex-start; }}
.beside > * {{ max-width: 100%; }} .beside > .rest {{ flex: 1 1 460px; min-width: 0; }}
.rest > .nest {{ margin: 0; }}
table {{ border-collapse: collapse; font-size: 14px; width: 100%; }}
th {{ text-align: left; font-weight: 600; color: var(--soft); white-space: nowrap; }}
th, td {{ padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }}
td.right, th.right {{ text-align: right; font-variant-numeric: tabular-nums; }}
td {{ white-space: nowrap; }} td.wrap {{ white-space: normal; min-width: 8em; }}
.badge {{ display: inline-block; min-width: 20px; padding: 0 5px; border-radius: 10px;
  color: var(--ground); font-size: 12px; line-height: 20px; text-align: center; font-weight: 600;
  margin-right: 7px; }}
.dot {{ display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 7px; }}
.nest {{ font-size: 13px; line-height: 1.6; overflow-x: auto; white-space: pre;
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
  padding: 10px 14px; }}
.nest div {{ border-left: 3px solid transparent; padding-left: 8px; }}
.nest .word {{ color: var(--soft); }}
.nest .tag {{ border: 1px solid var(--line); background: var(--ground); border-radius: 4px;
  padding: 0 5px; font-size: 12px; margin-left: 6px; }}
.nest .memory {{ border-color: var(--accent); color: var(--accent); }}
details summary {{ cursor: pointer; color: var(--accent); margin: 8px 0; }}
svg.picture {{ max-width: 100%; height: auto; display: block; font: 12px system-ui, "Segoe UI",
  Roboto, "DejaVu Sans", sans-serif; overflow: visible; }}
svg.full {{ max-width: none; }}
.narrow {{ display: none; }}
@media screen and (max-width: 640px) {{
  main {{ padding: 20px 22px 40px; }}
  .wide {{ display: none; }} .narrow {{ display: block; }}
  main section {{ overflow-x: auto; }} svg.picture {{ max-width: none; }}
  .lists tr {{ display: block; padding: 6px 0; border-bottom: 1px solid var(--line); }}
  .lists td, .lists td.right {{ display: flow-root; padding: 2px 0 2px 8.5em; border: 0;
    text-align: left; white-space: normal; }}
  .lists td::before {{ content: attr(data-heading); float: left; width: 8em;
    margin-left: -8.5em; color: var(--soft); }}
  .lists thead, .lists td:empty, .lists td.right:empty {{ display: none; }}
}}
svg text {{ fill: var(--ink); }}
svg .tick, svg .faint {{ fill: var(--soft); font-size: 11.5px; }}
svg .axis {{ fill: var(--soft); }}
svg .grid {{ stroke: var(--line); stroke-width: 1; }}
svg .base {{ stroke: var(--soft); stroke-width: 1; }}
svg .value {{ font-variant-numeric: tabular-nums; }}
svg .failed {{ fill: var(--bad); }}
svg .whisker {{ stroke: var(--ink); stroke-width: 1.3; fill: none; }}
svg .muted {{ fill: var(--soft); fill-opacity: 0.55; }}
svg .accent {{ fill: var(--accent); }}
svg .cut {{ fill: var(--ground); }}
svg .curve {{ fill: none; stroke-width: 2; stroke-linejoin: round; }}
svg .band {{ fill-opacity: 0.16; }}
svg .strand {{ fill: none; stroke-width: 1.2; }}
svg .guide {{ stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }}
svg .edge {{ fill: none; stroke: var(--soft); stroke-opacity: 0.55; stroke-width: 1.2; }}
svg .node {{ fill: var(--node); stroke: var(--soft); stroke-width: 1.1; }}
svg .input {{ fill: var(--panel); stroke: var(--soft); stroke-width: 1.1; }}
svg .inlined {{ stroke-dasharray: 3 3; }}
svg .plate {{ fill: var(--ground); }}
svg .output {{ stroke-width: 2.2; }}
svg .arrow {{ fill: var(--soft); }}
svg .groupname {{ font-weight: 600; font-size: 11.5px; }}
svg .halo {{ paint-order: stroke; stroke: var(--ground); stroke-opacity: 0.75; stroke-width: 3px; }}
{_CLASSES}
@media print {{
  :root {{ color-scheme: light; {_LIGHT_SCHEME} }}
  main {{ max-width: none; padding: 0; }}
  body {{ font-size: 11pt; }}
  h2 {{ break-after: avoid; }}
  .picture, tr, .figure {{ break-inside: avoid; }}
  .scroll, .nest, pre {{ overflow: visible; white-space: pre-wrap; }}
  .nest {{ white-space: pre; font-size: 8.5pt; }}
  * {{ -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
}}
"""
