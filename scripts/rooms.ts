/**
 * Holds the sources to the plan of the house.
 *
 *   node scripts/rooms.ts            writes the import rules of `.oxlintrc.json`, and takes off `rooms-left.json` what is mended
 *   node scripts/rooms.ts --check    writes nothing, names what breaks a rule, and exits with 1 if anything does
 *
 * `rooms-left.json` lists what broke a rule when the rule was made, with a figure. Nothing is added to it.
 */
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { fillLintSettings, print } from './lint-imports.ts'
import { type Breach, type Tree, roomRules } from './room-rules.ts'
import { repositoryRoot } from './run-command.ts'
import { readSources } from './source-graph.ts'

const settingsPath = '.oxlintrc.json'
const leftPath = 'scripts/rooms-left.json'

type Left = Readonly<Record<string, Readonly<Record<string, number>>>>

process.exitCode = main()

function main(): number {
  const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })
  const left = JSON.parse(read(leftPath)) as Left
  const whole = tree()
  const found = roomRules.map(({ name, find }) => ({ name, breaches: find(whole) }))
  const settings = fillLintSettings(read(settingsPath))
  if (!values.check) {
    writeFileSync(join(repositoryRoot, settingsPath), settings)
    writeFileSync(join(repositoryRoot, leftPath), `${print(shrunk(left, found))}\n`)
  }
  const findings = [
    ...(values.check && settings !== read(settingsPath) ? [`${settingsPath}: Stale. Run: node scripts/rooms.ts`] : []),
    ...found.flatMap(({ name, breaches }) => breaches.filter(({ at, figure }) => figure > (left[name]?.[at] ?? 0)).map(sentence)),
    ...(values.check ? mended(left, found) : []),
  ]
  if (findings.length > 0) console.log(findings.join('\n'))
  return findings.length === 0 ? 0 : 1
}

interface Found {
  readonly name: string
  readonly breaches: readonly Breach[]
}

/** What stands on the list and breaks the rule no more. */
function mended(left: Left, found: readonly Found[]): string[] {
  return Object.entries(left).flatMap(([name, places]) => {
    const still = new Set(found.find((rule) => rule.name === name)?.breaches.map(({ at }) => at))
    const gone = Object.keys(places).filter((at) => !still.has(at))
    return gone.map((at) => `${leftPath}: ${at} breaks "${name}" no more. Run: node scripts/rooms.ts`)
  })
}

/** The list with smaller figures where they became smaller. */
function shrunk(left: Left, found: readonly Found[]): Left {
  return Object.fromEntries(
    found.map(({ name, breaches }) => {
      const kept = breaches.filter(({ at }) => left[name]?.[at] !== undefined)
      return [name, Object.fromEntries(kept.map(({ at, figure }) => [at, Math.min(figure, left[name]?.[at] ?? figure)]))]
    }),
  )
}

function sentence({ at, problem }: Breach): string {
  return `${at}: ${problem}`
}

function tree(): Tree {
  const tests = globSync('{src,packages/*/src}/**/*.{test,test-d}.ts', { cwd: repositoryRoot })
  const code = globSync('{src,packages,test,scripts,bench}/**/*.ts', {
    cwd: repositoryRoot,
    exclude: ['**/node_modules', '**/dist'],
  })
  return {
    sources: readSources(repositoryRoot),
    entries: new Set(entries()),
    tests: tests.toSorted(),
    texts: new Map(code.toSorted().map((path) => [path, read(path)])),
  }
}

/** What package.json exports and starts, by its source. */
function entries(): string[] {
  const manifests = globSync('{.,packages/*}/package.json', { cwd: repositoryRoot })
  return manifests.flatMap((path) => {
    const files = read(path).match(/(?<="\.\/)(?:dist|src)\/[\w/-]+(?=\.[jt]s")/g) ?? []
    return files.map((file) => join(dirname(path), `${file.replace(/^dist/, 'src')}.ts`))
  })
}

function read(path: string): string {
  return readFileSync(join(repositoryRoot, path), 'utf8')
}
