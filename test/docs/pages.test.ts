/**
 * The pages hold no command, option, name, link or figure that does not exist.
 *
 * Commands are parsed by the CLI's own parser; names in code font must be in the sources; a promise of docs/guarantees.md
 * names a test by its file and title, and both must be there.
 */
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { commands } from '../../src/cli/commands.ts'
import { drills } from '../../src/drill/drills.ts'
import { metricDefinitions, prometheusName } from '../../src/telemetry/metric-definitions.ts'
import { repositoryRoot } from '../../scripts/run-command.ts'
import { optionFunctions } from '../../scripts/option-functions.ts'
import { commandProblems, shellCommands } from './commands.ts'
import { knownDefaults, statedDefaults, wrongDefaults } from './default-values.ts'
import { figureProblems, sizeProblems, type Size } from './figures.ts'
import { anchors, inlineCode, linkTargets, pages, parsePage, tableRows } from './pages.ts'

/** Names that a reader of a page chooses. */
const examples = ['video_pkey', 'video_title_idx', 'waybill_cdc', 'waybill_outbox', 'waybill_audit', 'orders_service']
/** Names of Postgres and Debezium. */
const others = [
  'no_data',
  'pg_drop_replication_slot',
  'max_slot_wal_keep_size',
  'sync_replication_slots',
  'pg_upgrade',
  'pg_terminate_backend',
  'max_prepared_transactions',
]

const every = pages()
const read = (path: string): string => readFileSync(join(repositoryRoot, path), 'utf8')
const manifest = JSON.parse(read('package.json')) as { readonly scripts: Readonly<Record<string, string>> }
const known = { scripts: Object.keys(manifest.scripts), commands }

test('every command that a page mentions exists, with its options', () => {
  const problems = every.flatMap((page) =>
    shellCommands(page).flatMap((line) => commandProblems(line, known).map((problem) => `${page.path}: ${line}: ${problem}`)),
  )
  expect(problems).toEqual([])
})

test('a command, option or script that does not exist is noticed', () => {
  const lines = [
    'waybill relay --onse',
    'waybill relais',
    'npm run proofs',
    'waybill outbox status --stream',
    'npx waybill dlq',
    'npm run bench -- rely',
    'npm run proof -- relai',
  ]
  expect(lines.filter((line) => commandProblems(line, known).length !== 1)).toEqual([])
  expect(commandProblems('waybill relay --once', known)).toEqual([])
})

test('every link leads somewhere', () => {
  const problems = every.flatMap(({ path, prose }) =>
    linkTargets(prose)
      .filter((target) => !/^(https?|mailto):/.test(target))
      .filter((target) => !leads(path, target))
      .map((target) => `${path}: ${target}`),
  )
  expect(problems).toEqual([])
  expect(leads('README.md', 'docs/guides/outbox.md#no-such-heading')).toBe(false)
})

test('every file that a page names in code font exists', () => {
  const problems = every.flatMap(({ path, prose }) =>
    inlineCode(prose)
      .filter(
        (code) =>
          /^(?:src|packages|test|scripts|deploy|examples|docs|sql|bench)\/[\w./-]+$/.test(code) || isOfExample(path, code),
      )
      .filter((code) => !code.includes('NNNN'))
      .filter((code) => !existsSync(join(repositoryRoot, isOfExample(path, code) ? join(dirname(path), code) : code)))
      .map((code) => `${path}: ${code}`),
  )
  expect(problems).toEqual([])
})

test('every signal and alert that the runbook sends somebody to look for exists', () => {
  const signals = read('src/core/signals.ts')
  const alerts = read('deploy/prometheus/waybill.rules.yml')
  const { prose } = parsePage('', read('docs/guides/runbook.md'))
  const logged = [...prose.matchAll(/the log\s+\(`([a-z.-]+)`\)/g)].map((match) => match[1] ?? '')
  expect(logged.length).toBeGreaterThan(5)
  expect(logged.filter((signal) => !signals.includes(`'${signal}':`))).toEqual([])
  const named = every.flatMap((page) => page.prose.match(/\bWaybill[A-Z]\w+/g) ?? []).filter((name) => name !== 'WaybillError')
  expect([...new Set(named)].filter((name) => !alerts.includes(`alert: ${name}\n`) && name !== 'WaybillConfig')).toEqual([])
})

test('every guide and reference page can be found from the index', () => {
  const linked = new Set(linkTargets(read('docs/README.md')).map((target) => join('docs', target)))
  const missing = globSync(['docs/*.md', 'docs/guides/*.md', 'docs/reference/*.md'], { cwd: repositoryRoot })
    .filter((path) => path !== 'docs/README.md')
    .filter((path) => !linked.has(path))
  expect(missing).toEqual([])
})

describe('names in code font', () => {
  const folders = ['src', 'packages/*/src', 'sql', 'deploy', 'scripts', 'examples', 'test/setup', 'test/simulation']
  const sources = globSync(['package.json', ...folders.map((folder) => `${folder}/**/*.{ts,sql,json,yml,yaml,tf}`)], {
    cwd: repositoryRoot,
    exclude: (path) => /\.(test|test-d)\.ts$/.test(path),
  })
  const text = sources.map(read)
  const metrics = Object.keys(metricDefinitions) as (keyof typeof metricDefinitions)[]
  const words = new Set([...(text.join('\n').match(/[\w$]+/g) ?? []), ...metrics.map(prometheusName), ...examples, ...others])

  /** Names that are ours to define: camelCase, SCREAMING_CASE, snake_case. */
  const ours = /^[a-z]+(?:[A-Z][a-z0-9]*)+$|^[A-Z]+(?:_[A-Z]+)+$|^[a-z]+(?:_[a-z]+)+$/

  test('are in the sources', () => {
    const problems = every
      .filter(({ path }) => !path.startsWith('docs/reference/'))
      .flatMap(({ path, prose }) =>
        inlineCode(prose)
          .flatMap((code) => code.match(/[\w$]+/g) ?? [])
          .filter((word) => ours.test(word) && !words.has(word))
          .map((word) => `${path}: ${word}`),
      )
    expect([...new Set(problems)]).toEqual([])
  })

  test('of options, in tables of options, are options', () => {
    const options = new Set(text.flatMap((each) => [...each.matchAll(/readonly (\w+)\??:/g)].map((match) => match[1])))
    const problems = pages(/^docs\/guides/).flatMap(({ path, prose }) =>
      tableRows(prose)
        .filter(({ head }) => head[0] === 'option')
        .flatMap(({ cells }) => inlineCode(cells[0] ?? ''))
        .map((code) => code.split(/[:. ]/)[0] ?? '')
        .filter((name) => !name.startsWith('--') && !options.has(name))
        .map((name) => `${path}: ${name}`),
    )
    expect(problems).toEqual([])
  })
})

test('every options type that the package exports is in the reference', () => {
  const listed = new Set(optionFunctions.flatMap(({ interfaces }) => interfaces.map(([name]) => name)))
  const exported = [...read('src/index.ts').matchAll(/\btype (\w+Options)\b|\b(\w+Options) }/g)].map(([, a, b]) => a ?? b ?? '')
  expect(exported.length).toBeGreaterThan(20)
  // A back-off is an option among others; where there is one, its parts are named.
  expect(exported.filter((name) => !listed.has(name) && name !== 'BackoffOptions')).toEqual([])
})

test('a default that a guide states is the default', () => {
  const reference = `${read('docs/reference/options.md')}\n${read('docs/reference/defaults.md')}`
  const known = knownDefaults(reference)
  expect(known.size).toBeGreaterThan(50)
  const stated = pages(/^docs\/guides/).map(({ path, prose }) => ({ path, defaults: statedDefaults(prose) }))
  expect(stated.flatMap(({ defaults }) => defaults).length).toBeGreaterThan(20)
  const problems = stated.flatMap(({ path, defaults }) => wrongDefaults(defaults, known).map((problem) => `${path}: ${problem}`))
  expect(problems).toEqual([])
  expect(wrongDefaults(statedDefaults('a lease of `publishTimeoutMs` (11 s)'), known)).toHaveLength(1)
})

test('a figure of speed stands only where a bench that prints it is named', () => {
  const problems = pages(/^(README|ARCHITECTURE|docs)/).flatMap(({ path, prose }) =>
    figureProblems(prose).map((problem) => `${path}: ${problem}`),
  )
  expect(problems).toEqual([])
  expect(figureProblems('It moves 45,000 events/s.')).toHaveLength(1)
  expect(figureProblems('It is 12 times faster.')).toHaveLength(1)
  expect(figureProblems('`npm run bench -- relay` shows 45,000 events/s.')).toEqual([])
})

test('a size that a decision or a guide states is that of the tree', () => {
  const decisions = globSync('docs/decisions/*.md', { cwd: repositoryRoot }).map((path) => parsePage(path, read(path)))
  const problems = [...every, ...decisions].flatMap(({ path, prose }) =>
    sizeProblems(prose, sizeOf).map((problem) => `${path}: ${problem}`),
  )
  expect(problems).toEqual([])
  expect(sizeProblems('It is about 3,700 lines.', sizeOf)).toHaveLength(1)
  expect(sizeProblems('It is about 900 lines in 14 files of `src/transport/pubsub`.', sizeOf)).toHaveLength(1)
  expect(sizeProblems('Files end at 80 lines.', sizeOf)).toEqual([])
})

test('the guide to drills counts them right', () => {
  expect(read('docs/guides/drills.md')).toContain(`${drills.length} drills`)
})

describe('guarantees', () => {
  const promises = tableRows(parsePage('', read('docs/guarantees.md')).prose).filter(({ head }) => head[1] === 'proved by')

  test.each(promises.map(({ cells }) => ({ promise: cells[0] ?? '', proof: cells[1] ?? '' })))('$promise', ({ proof }) => {
    const proofs = [...proof.matchAll(/`([^`]+)`: “([^”]+)”/g)]
    expect(proofs.length).toBeGreaterThan(0)
    for (const [, file = '', title = ''] of proofs) {
      expect(existsSync(join(repositoryRoot, file)) ? 'there' : file).toBe('there')
      expect(read(file)).toContain(title)
    }
  })

  test('are not a short list', () => {
    expect(promises.length).toBeGreaterThan(15)
  })
})

function sizeOf(folder: string): Size {
  const files = globSync(`${folder}/**/*.ts`, { cwd: repositoryRoot, exclude: (path) => /\.(?:test|test-d)\.ts$/.test(path) })
  return { files: files.length, lines: files.flatMap((file) => read(file).trimEnd().split('\n')).length }
}

/** A file of the example whose page this is. */
function isOfExample(path: string, code: string): boolean {
  return (
    /^(?:examples|deploy)\//.test(path) &&
    /^[\w-]+(?:\/[\w.-]+)*\.(?:ts|yaml|yml|json|sql)$/.test(code) &&
    !code.startsWith('scripts/')
  )
}

function leads(page: string, target: string): boolean {
  const [file = '', anchor] = target.split('#')
  const path = file === '' ? page : join(dirname(page), file)
  if (!existsSync(join(repositoryRoot, path))) return false
  return anchor === undefined || !path.endsWith('.md') || anchors(parsePage(path, read(path)).prose).has(anchor)
}
