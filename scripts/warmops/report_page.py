"""What the pages of all reports have in common: one file that stands alone, light or dark as its reader.

In: a title, facts, findings. Out: HTML text. No script, no font, no request to anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from warmops.drill_plan import Finding

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:1rem 0}
td:first-child{white-space:nowrap}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #8884;vertical-align:top}
.ok{color:#2f9e5f}.bad{color:#e03131;font-weight:600}
svg text{fill:currentColor;font:12px system-ui,sans-serif}
.key{display:inline-block;margin-right:1rem}
.key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
"""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of parts that are HTML already."""
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>warmstack: {escape(title)}</title>"
    return "\n".join([head, f"<style>{_STYLE}</style><h1>warmstack report</h1>", *parts, "</html>"]) + "\n"


def facts_table(facts: Mapping[str, object]) -> str:
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}' for name in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def findings_table(what: str, findings: Iterable[tuple[str, Finding]]) -> str:
    """Every finding with the name of that which it is about, under the heading `what`."""
    rows = (
        f"<tr><td>{escape(name)}<td>{escape(finding.name)}<td>{escape(finding.expected)}"
        f"<td class={'ok' if finding.ok else 'bad'}>{escape(finding.found)}</tr>"
        for name, finding in findings
    )
    return f"<table><tr><th>{escape(what)}<th>what<th>expected<th>found</tr>{''.join(rows)}</table>"
