/**
 * `npm run map`: the rooms with their sizes, what is out of proportion in them, and five paths walked in real runs.
 *
 *   npm run map               prints it all; takes half a minute for the walks
 *   npm run map -- --json     the same for machines
 *   npm run map -- --draw     writes the picture of ARCHITECTURE.md, and walks nothing
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { drawMap, pictures } from './draw-map.ts'
import { featureOf, folderOf, hubCap, roomOf } from './layers.ts'
import { repositoryRoot, runCommand } from './run-command.ts'
import { cycles, fanOut, importersOf, readSources, sharedNames, type SourceFile, type SourceGraph } from './source-graph.ts'
import type { Walk } from './trace-calls.ts'

/**
 * The paths as they were at bd3f045. This walk finds the same there, within one file and six changes; for the whole chain, 95 files and 571
 * changes.
 */
const before: Readonly<Record<string, { readonly files: number; readonly changes: number }>> = {
  add: { files: 21, changes: 37 },
  relay: { files: 43, changes: 358 },
  consume: { files: 60, changes: 240 },
  'whole chain': { files: 100, changes: 626 },
  command: { files: 48, changes: 132 },
  redrive: { files: 35, changes: 122 },
}

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { json: { type: 'boolean', default: false }, draw: { type: 'boolean', default: false } },
  })
  const sources = readSources(repositoryRoot)
  if (values.draw) {
    for (const [path, theme] of Object.entries(pictures)) writeFileSync(join(repositoryRoot, path), drawMap(sources, theme))
    return 0
  }
  const { code, output } = await runCommand(['node', 'scripts/walk-paths.ts'])
  if (code !== 0) {
    console.error(output)
    return 1
  }
  const walked = JSON.parse(output.slice(output.indexOf('{'))) as Readonly<Record<string, Walk>>
  const map = { ...survey(sources), paths: withBefore(walked) }
  console.log(values.json ? JSON.stringify(map, undefined, 2) : describe(map))
  return 0
}

/** What is said of the sources without running them. */
function survey(sources: SourceGraph) {
  const importers = importersOf(sources)
  const files = [...sources.values()]
  const rooms = Map.groupBy(files, ({ path }) => placeOf(path))
  const ins = (path: string): number => importers.get(path)?.length ?? 0
  return {
    all: sizes(files),
    rooms: [...rooms].map(([room, inside]) => ({
      room,
      ...sizes(inside),
      oneImporter: inside.filter(({ path }) => ins(path) === 1).map(({ path }) => path),
    })),
    hubs: files
      .map((file) => ({ path: file.path, fanIn: ins(file.path), fanOut: fanOut(file) }))
      .filter((each) => each.fanOut > hubCap || each.fanIn > 3 * hubCap)
      .toSorted((a, b) => b.fanOut - a.fanOut || b.fanIn - a.fanIn),
    homonyms: sharedNames(sources),
    cycles: { value: cycles(sources, false), type: cycles(sources, true) },
  }
}

type Survey = ReturnType<typeof survey>

/** The room, and by its feature those that stand outside of rooms. */
function placeOf(path: string): string {
  const feature = featureOf(path)
  if (feature === undefined) return 'src'
  const room = roomOf(feature, path)
  return room === '.' ? folderOf(feature) : `${folderOf(feature)}/${room}`
}

function sizes(files: readonly SourceFile[]) {
  const codeLines = files.reduce((sum, file) => sum + file.codeLines, 0)
  const commentLines = files.reduce((sum, file) => sum + file.commentLines, 0)
  return { files: files.length, codeLines, commentShare: Math.round((100 * commentLines) / (codeLines + commentLines)) }
}

function withBefore(walked: Readonly<Record<string, Walk>>) {
  return Object.entries(walked).map(([path, { files, functions, changes }]) => ({
    path,
    files: files.length,
    functions,
    changes,
    before: before[path],
    entered: files,
  }))
}

function describe(map: Survey & { paths: ReturnType<typeof withBefore> }): string {
  const { all, rooms, hubs, homonyms, paths } = map
  const room = (name: string, size: ReturnType<typeof sizes>, once: number): string =>
    `${name.padEnd(36)}${cell(size.files)}${cell(size.codeLines)}${cell(`${size.commentShare} %`)}${cell(once)}`
  const onceOf = rooms.map((each) => each.oneImporter.length)
  return [
    `${'ROOM'.padEnd(36)}${cell('FILES')}${cell('CODE')}${cell('COMMENT')}${cell('USED ONCE')}`,
    ...rooms.map((each) => room(each.room, each, each.oneImporter.length)),
    room(
      'all',
      all,
      onceOf.reduce((sum, each) => sum + each, 0),
    ),
    `\n${'HUB'.padEnd(52)}${cell('FAN-IN')}${cell('FAN-OUT')}`,
    ...hubs.map(({ path, fanIn, fanOut: out }) => `${path.padEnd(52)}${cell(fanIn)}${cell(out)}`),
    `\n${homonyms.length} exported names mean several things: ${homonyms.map(({ name }) => name).join(', ')}`,
    `${map.cycles.value.length} cycles of value imports, ${map.cycles.type.length} with type imports`,
    ...map.cycles.type.map((members) => `  ${members.join(' ')}`),
    `\n${'PATH'.padEnd(14)}${cell('FILES')}${cell('before')}${cell('FUNCTIONS')}${cell('CHANGES')}${cell('before')}`,
    ...paths.map(
      (each) =>
        `${each.path.padEnd(14)}${cell(each.files)}${cell(each.before?.files)}${cell(each.functions)}${cell(each.changes)}${cell(each.before?.changes)}`,
    ),
  ].join('\n')
}

function cell(value: string | number | undefined): string {
  return String(value ?? '').padStart(10)
}
