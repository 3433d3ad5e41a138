/**
 * A drill's timeline as a picture: when the fault struck, how long it took to recover, and every step as a numbered dot.
 *
 * Plain SVG without scripts, fonts or colours of its own: the page gives the classes their colours, by day and by night.
 */
import type { TimelineEntry } from '../stage/drill.ts'

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
