/**
 * The picture of the house: the features as boxes, their rooms in the order of the path, the way of an event from left to right.
 *
 * It is made from scripts/layers.ts; only where a box stands is said here. Counts of files are in elements of their own, so that a
 * picture can be compared with the plan without them.
 */
import { featureOf, features, folderOf, roomOf } from './layers.ts'
import type { SourceGraph } from './source-graph.ts'

export type Theme = 'light' | 'dark'

/** The pictures, by their path. */
export const pictures: Readonly<Record<string, Theme>> = { 'docs/map-light.svg': 'light', 'docs/map-dark.svg': 'dark' }

const colours = {
  light: { text: '#1f2328', faint: '#656d76', box: '#f6f8fa', line: '#8c959f', path: '#0969da' },
  dark: { text: '#e6edf3', faint: '#8b949e', box: '#161b22', line: '#6e7681', path: '#58a6ff' },
}

/** From the faces down to the floor. What has no rooms of its own, and stands in a folder with others, is one line of a box. */
const storeys: readonly { readonly title: string; readonly boxes: readonly string[] }[] = [
  { title: 'faces', boxes: ['integrations', 'cli', 'config', 'dashboard', 'ops', 'telemetry'] },
  { title: 'the path of an event', boxes: ['command', 'ingest', 'outbox', 'transport', 'consumer', 'projection'] },
  { title: 'the floor', boxes: ['core', 'postgres', 'codec'] },
  { title: 'proof', boxes: ['testing', 'drill', 'pubsub-server'] },
]
/** The boxes that an event goes through. */
const path = [
  ['command', 'outbox'],
  ['ingest', 'outbox'],
  ['outbox', 'transport'],
  ['transport', 'consumer'],
  ['consumer', 'projection'],
]

const width = 1000
const gap = 26
const lineHeight = 17
const headHeight = 26
const titleHeight = 22
/** Boxes wider than this have two columns. */
const twoColumns = 200

interface Box {
  readonly name: string
  readonly x: number
  readonly y: number
  readonly width: number
  readonly height: number
  readonly lines: readonly Line[]
}

interface Line {
  readonly text: string
  readonly files: number
}

export function drawMap(sources: SourceGraph, theme: Theme): string {
  const { text, faint, box: fill, line, path: blue } = colours[theme]
  const { boxes, titles, height } = layOut(sources)
  const parts = [
    ...titles.map(({ title, y }) => `<text x="0" y="${y}" class="faint">${title}</text>`),
    ...boxes.map(drawBox),
    ...path.map(([from, to]) => arrow(find(boxes, from), find(boxes, to))),
  ]
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 0 ${width + 20} ${height}" font-family="ui-sans-serif, system-ui, sans-serif" font-size="12">
<style>text{fill:${text}}.faint{fill:${faint}}.name{font-weight:600}rect{fill:${fill};stroke:${line}}.path{fill:none;stroke:${blue};stroke-width:2}.tip{fill:${blue}}</style>
${parts.join('\n')}
</svg>
`
}

/** A picture without what changes from day to day. */
export function withoutCounts(picture: string): string {
  return picture.replaceAll(/<text [^>]*class="faint count"[^>]*>\d+<\/text>\n?/g, '')
}

function layOut(sources: SourceGraph) {
  const placed = new Set(storeys.flatMap((storey) => storey.boxes))
  const homeless = Object.keys(features).filter((name) => !placed.has(name) && !placed.has(name.split('/')[0] ?? ''))
  if (homeless.length > 0) throw new Error(`scripts/draw-map.ts has no box for ${homeless.join(', ')}.`)
  const boxes: Box[] = []
  const titles: { readonly title: string; readonly y: number }[] = []
  let y = 4
  for (const { title, boxes: names } of storeys) {
    titles.push({ title, y: y + 12 })
    const wide = (width - gap * (names.length - 1)) / names.length
    const all = names.map((name) => ({ name, lines: linesOf(sources, name) }))
    const rows = Math.max(...all.map(({ lines }) => Math.ceil(lines.length / columnsOf(wide))))
    const height = headHeight + rows * lineHeight + 8
    for (const [i, box] of all.entries())
      boxes.push({ ...box, x: Math.round(i * (wide + gap)), y: y + titleHeight, width: Math.round(wide), height })
    y += titleHeight + height + 18
  }
  return { boxes, titles, height: y }
}

/** The rooms of a feature, or the features of a folder. */
function linesOf(sources: SourceGraph, box: string): Line[] {
  const rooms = features[box]?.rooms?.flat()
  if (rooms !== undefined) {
    const count = (room: string): number => countOf(sources, (path) => featureOf(path) === box && roomOf(box, path) === room)
    return rooms.map((room) => ({ text: room === '.' ? `${folderOf(box)}/*.ts` : room, files: count(room) }))
  }
  const inside = Object.keys(features).filter((name) => name === box || name.startsWith(`${box}/`))
  return inside.map((name) => ({
    text: name === box ? folderOf(name) : name.slice(box.length + 1),
    files: countOf(sources, (path) => featureOf(path) === name),
  }))
}

function countOf(sources: SourceGraph, isCounted: (path: string) => boolean): number {
  return [...sources.keys()].filter(isCounted).length
}

function columnsOf(wide: number): number {
  return wide > twoColumns ? 2 : 1
}

function drawBox({ name, x, y, width: wide, height, lines }: Box): string {
  const [columns, perColumn] = [columnsOf(wide), Math.ceil(lines.length / columnsOf(wide))]
  const rows = lines.map(({ text, files }, i) => {
    const left = x + Math.floor(i / perColumn) * (wide / columns)
    const at = y + headHeight + ((i % perColumn) + 0.8) * lineHeight
    const right = left + wide / columns - 10
    return `<text x="${left + 10}" y="${at}">${text}</text>\n<text x="${right}" y="${at}" text-anchor="end" class="faint count">${files}</text>`
  })
  return [
    `<rect x="${x}" y="${y}" width="${wide}" height="${height}" rx="6"/>`,
    `<text x="${x + 10}" y="${y + 19}" class="name">${name}</text>`,
    ...rows,
  ].join('\n')
}

/** Between boxes beside each other; over those that lie between. */
function arrow(from: Box, to: Box): string {
  const [x, y] = [to.x, to.y + 14]
  const start = from.x + from.width
  const isNear = x - start <= gap + 1
  const way = isNear ? `M${start} ${y}H${x - 6}` : `M${start} ${y}h8v-20H${x - 14}v20h8`
  return `<path d="${way}" class="path"/>\n<path d="M${x} ${y}l-7 -4v8z" class="tip"/>`
}

function find(boxes: readonly Box[], name = ''): Box {
  const box = boxes.find((each) => each.name === name)
  if (box === undefined) throw new Error(`There is no box "${name}".`)
  return box
}
