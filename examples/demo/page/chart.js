/**
 * The latencies of the last minute, on a logarithmic scale: milliseconds in good times and seconds after a kill both stay readable.
 * Dashed lines are the moments at which something was broken.
 */

const namespace = 'http://www.w3.org/2000/svg'
const spanMs = 60_000
const ticks = [
  { ms: 1, label: '1 ms' },
  { ms: 10, label: '10 ms' },
  { ms: 100, label: '100 ms' },
  { ms: 1_000, label: '1 s' },
  { ms: 10_000, label: '10 s' },
]
const [lowestMs, highestMs] = [1, 30_000]
const edge = { left: 48, right: 8, top: 10, bottom: 20 }

/** @param {SVGElement} svg */
export function createChart(svg) {
  const layers = {
    grid: layer(svg, 'g'),
    faults: layer(svg, 'g'),
    slow: layer(svg, 'path', 'slow'),
    published: layer(svg, 'path', 'published'),
    applied: layer(svg, 'path', 'applied'),
  }
  let size = { width: 0, height: 0 }
  new ResizeObserver(() => {
    size = { width: svg.clientWidth, height: svg.clientHeight }
    drawGrid(layers.grid, size)
  }).observe(svg)

  return {
    /** @param {{ atMs: number, slices: any[], happenings: any[] }} snapshot */
    draw({ atMs, slices, happenings }) {
      const x = (time) => edge.left + (1 - (atMs - time) / spanMs) * (size.width - edge.left - edge.right)
      const y = (ms) => yOf(ms, size)
      const shown = slices.filter((slice) => atMs - slice.atMs <= spanMs)
      const line = (pick) => points(shown, pick, (slice, ms) => `${x(slice.atMs).toFixed(1)},${y(ms).toFixed(1)}`)
      layers.published.setAttribute('d', lines(line((slice) => slice.published?.p50)))
      layers.applied.setAttribute('d', lines(line((slice) => slice.applied?.p50)))
      layers.slow.setAttribute(
        'd',
        areas(
          line((slice) => slice.applied?.p95),
          line((slice) => slice.applied?.p50),
        ),
      )
      layers.faults.replaceChildren(
        ...happenings
          .filter(({ kind, atMs: at }) => kind === 'fault' && atMs - at <= spanMs)
          .map(({ atMs: at }) => vertical(x(at), size, 'fault')),
      )
    },
  }
}

/** The runs of slices that have a value: a break in the line is a time in which nothing arrived. */
function points(slices, pick, toPoint) {
  const runs = [[]]
  for (const slice of slices) {
    const ms = pick(slice)
    if (ms === undefined || ms === null) runs.push([])
    else runs.at(-1)?.push(toPoint(slice, ms))
  }
  return runs.filter((run) => run.length > 0)
}

function lines(runs) {
  return runs.map((run) => `M${run.join('L')}${run.length === 1 ? 'h0.1' : ''}`).join('')
}

function areas(upper, lower) {
  return upper.map((run, index) => `M${run.join('L')}L${[...(lower[index] ?? [])].reverse().join('L')}Z`).join('')
}

function yOf(ms, { height }) {
  const share = Math.log10(Math.min(highestMs, Math.max(lowestMs, ms)) / lowestMs) / Math.log10(highestMs / lowestMs)
  return height - edge.bottom - share * (height - edge.top - edge.bottom)
}

function drawGrid(grid, size) {
  const rows = ticks.flatMap(({ ms, label }) => {
    const y = yOf(ms, size)
    return [rule({ x1: edge.left, x2: size.width - edge.right, y1: y, y2: y }, 'grid'), text(label, edge.left - 8, y + 4, 'end')]
  })
  const below = size.height - 4
  const times = [text('1 min ago', edge.left, below, 'start'), text('now', size.width - edge.right, below, 'end')]
  grid.replaceChildren(...rows, ...times)
}

function vertical(x, { height }, className) {
  return rule({ x1: x, x2: x, y1: edge.top, y2: height - edge.bottom }, className)
}

function rule(ends, className) {
  const made = document.createElementNS(namespace, 'line')
  for (const [name, value] of Object.entries(ends)) made.setAttribute(name, String(value))
  made.setAttribute('class', className)
  return made
}

function text(label, x, y, anchor) {
  const made = document.createElementNS(namespace, 'text')
  made.textContent = label
  made.setAttribute('x', String(x))
  made.setAttribute('y', String(y))
  made.setAttribute('text-anchor', anchor)
  return made
}

function layer(svg, tag, className = '') {
  const made = document.createElementNS(namespace, tag)
  if (className !== '') made.setAttribute('class', className)
  svg.append(made)
  return made
}
