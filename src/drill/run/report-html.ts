/**
 * The report of a run of drills as one page that needs nothing else: no script, no font, no request. Light or dark as its reader is.
 */
import type { DrillRecord, DrillReport, TimelineEntry } from '../stage/drill.ts'
import { summaryText } from './report-text.ts'

export function reportHtml(report: DrillReport): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Drills: ${report.verdict}</title>
<style>${style}</style>
</head>
<body>
<header>
<h1>Drills</h1>
<p class="summary ${report.verdict}">${escape(summaryText(report))}</p>
<nav>${report.drills.map(({ name, verdict }) => `<a class="chip ${verdict}" href="#${name}">${name}</a>`).join(' ')}</nav>
</header>
<main>
${report.drills.map(section).join('\n')}
</main>
</body>
</html>
`
}

function section(record: DrillRecord): string {
  const { name, verdict, hazard, fault, fired, evidence, timeline, seconds, judged, violations } = record
  return `<section id="${name}" class="${verdict}">
<h2>${name} <span class="chip ${verdict}">${verdict}</span> <small>${seconds.toFixed(1)} s</small></h2>
<dl>
<dt>Hazard</dt><dd>${escape(hazard)}</dd>
<dt>Fault</dt><dd>${escape(fault)}</dd>
<dt>${verdict === 'skipped' ? 'Missing' : fired ? 'Seen' : 'Not seen'}</dt><dd>${escape(evidence)}</dd>
<dt>Found</dt><dd>${foundText(record)}</dd>
${judged.length === 0 ? '' : `<dt>Judged</dt><dd>${judged.join(', ')}</dd>`}
</dl>
${violations.length === 0 ? '' : `<ul class="violations">${violations.map((text) => `<li>${escape(text)}</li>`).join('')}</ul>`}
${timeline.length === 0 ? '' : `${timelinePicture(timeline, seconds)}\n${steps(record)}`}
</section>`
}

function foundText({ counts: { committed, published, duplicates, applied } }: DrillRecord): string {
  return `${committed} events committed, ${published} messages at the broker (${duplicates} of them duplicates), ${applied} effects applied`
}

function steps({ timeline }: DrillRecord): string {
  const items = timeline.map(
    ({ atMs, kind, what }) => `<li class="${kind}"><time>${(atMs / 1_000).toFixed(2)} s</time> ${escape(what)}</li>`,
  )
  return `<ol>${items.join('')}</ol>`
}

function escape(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}

const style = `
:root { color-scheme: light dark; --text: light-dark(#1c2430, #e6eaf0); --soft: light-dark(#5b6675, #9aa7b8); --line: light-dark(#d5dbe3, #333d4b);
  --page: light-dark(#f6f8fa, #11161d); --card: light-dark(#fff, #1a212b); --good: light-dark(#14713d, #4cc38a); --bad: light-dark(#b3261e, #ff8a80);
  --warn: light-dark(#8a5a00, #f0b95a); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 24px 20px 60px; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 26px; }
h2 { margin: 0 0 10px; font-size: 18px; }
small, dt, time { color: var(--soft); font-weight: 400; }
.summary { margin: 4px 0 14px; font-weight: 600; }
.summary.pass { color: var(--good); } .summary.fail { color: var(--bad); }
nav { display: flex; flex-wrap: wrap; gap: 6px; }
.chip { border: 1px solid currentColor; border-radius: 999px; padding: 1px 10px; font-size: 13px; font-weight: 500; text-decoration: none; }
.chip.pass { color: var(--good); } .chip.fail { color: var(--bad); } .chip.skipped { color: var(--warn); }
section { margin-top: 18px; padding: 18px 20px; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
section.fail { border-color: var(--bad); }
dl { display: grid; grid-template-columns: 72px 1fr; gap: 4px 12px; margin: 0 0 12px; }
dd { margin: 0; overflow-wrap: anywhere; }
.violations { color: var(--bad); overflow-wrap: anywhere; }
ol { margin: 8px 0 0; padding-left: 30px; font-size: 13.5px; columns: 2 380px; column-gap: 32px; }
li { break-inside: avoid; overflow-wrap: anywhere; }
ol li.fault::marker { color: var(--bad); font-weight: 700; } ol li.recovery::marker { color: var(--good); font-weight: 700; }
time { display: inline-block; min-width: 56px; font-variant-numeric: tabular-nums; }
.timeline { width: 100%; height: auto; display: block; }
.timeline text { font: 11px system-ui, sans-serif; text-anchor: middle; fill: var(--soft); }
.timeline .number { fill: #fff; font-weight: 600; font-size: 10px; }
.axis { stroke: var(--line); stroke-width: 2; }
.dot { fill: #6b7787; } .dot.fault { fill: #c0392b; } .dot.recovery { fill: #1e8449; }
.outage { fill: var(--bad); opacity: 0.12; }
`

/**
 * A drill's timeline as a picture: when the fault struck, how long it took to recover, and every step as a numbered dot.
 *
 * Plain SVG without scripts, fonts or colours of its own: the page gives the classes their colours, by day and by night.
 */
const width = 960
const height = 92
const edge = 24
const axisY = 58
const dotRadius = 9

export function timelinePicture(timeline: readonly TimelineEntry[], seconds: number): string {
  const endMs = Math.max(1, seconds * 1_000, ...timeline.map(({ atMs }) => atMs))
  const at = (ms: number): number => Math.round(edge + (ms / endMs) * (width - 2 * edge))
  const faults = timeline.filter(({ kind }) => kind === 'fault')
  const [from, to] = [faults.at(0)?.atMs, timeline.findLast(({ kind }) => kind === 'recovery')?.atMs]
  const parts = [
    from === undefined || to === undefined || to < from ? '' : outage(at(from), at(to), to - from),
    `<line class="axis" x1="${edge}" y1="${axisY}" x2="${width - edge}" y2="${axisY}"/>`,
    ...ticks(endMs).map((ms) => `<text class="tick" x="${at(ms)}" y="${height - 4}">${ms / 1_000} s</text>`),
    ...spread(timeline.map(({ atMs }) => at(atMs))).map((x, index) => dot(x, index + 1, timeline[index]?.kind ?? 'step')),
  ]
  const label = `${timeline.length} steps in ${seconds} seconds`
  return `<svg class="timeline" viewBox="0 0 ${width} ${height}" role="img" aria-label="${label}">${parts.join('')}</svg>`
}

function outage(from: number, to: number, ms: number): string {
  const middle = (from + to) / 2
  const text = `<text class="span" x="${Math.min(width - 90, Math.max(90, middle))}" y="14">fault to rest: ${(ms / 1_000).toFixed(1)} s</text>`
  return `<rect class="outage" x="${from}" y="20" width="${Math.max(2, to - from)}" height="${axisY - 20}" rx="4"/>${text}`
}

function dot(x: number, number: number, kind: TimelineEntry['kind']): string {
  return `<circle class="dot ${kind}" cx="${x}" cy="${axisY}" r="${dotRadius}"/><text class="number" x="${x}" y="${axisY + 3.5}">${number}</text>`
}

/** Dots that would lie upon each other stand side by side, as far as there is room. */
function spread(places: readonly number[]): readonly number[] {
  const room = 2 * dotRadius + 1
  const pushed: number[] = []
  for (const x of places) pushed.push(Math.max(x, (pushed.at(-1) ?? -room) + room))
  let limit = width - edge
  return pushed
    .toReversed()
    .map((x) => {
      const placed = Math.min(x, limit)
      limit = placed - room
      return placed
    })
    .toReversed()
}

function ticks(endMs: number): readonly number[] {
  const step = [500, 1_000, 2_000, 5_000, 10_000, 20_000].find((each) => endMs / each <= 10) ?? 60_000
  return Array.from({ length: Math.floor(endMs / step) + 1 }, (_, index) => index * step)
}
