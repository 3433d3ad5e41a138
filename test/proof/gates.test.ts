/**
 * Proves that each gate of `npm run check` can fail: violations are planted in a copy of the tree and the gate must name each of
 * them with the file that it is in. Those of one gate are planted together, because a gate looks at the whole tree. `npm test` can
 * fail as well: a test that is wrong once is planted for it.
 */
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { repositoryRoot, runCommand } from '../../scripts/run-command.ts'

const skipped = new Set(['node_modules', '.git', 'dist', '.cache'])
const header = '/** Planted by a test of the gates. */\n'
let copy: string

beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), 'waybill-gates-'))
  await cp(repositoryRoot, copy, { recursive: true, filter: (path) => !skipped.has(basename(path)) })
  await symlink(join(repositoryRoot, 'node_modules'), join(copy, 'node_modules'))
})

afterAll(async () => rm(copy, { recursive: true, force: true }))

interface Violation {
  readonly rule: string
  readonly gate: string
  readonly files: Readonly<Record<string, string>>
  readonly message: RegExp
  /** What the gate names in place of the planted file. */
  readonly at?: string
}

interface Verdict {
  readonly code: number
  /** What the gate said, finding by finding. */
  readonly findings: readonly string[]
}

const verdicts = new Map<string, Promise<Verdict>>()

/** The verdict of a gate on a tree with all violations of its rules. */
function verdictOf(gate: string): Promise<Verdict> {
  const known = verdicts.get(gate) ?? judge(gate)
  verdicts.set(gate, known)
  return known
}

/** Plants the files, runs the gate, takes them away again. */
async function judge(gate: string): Promise<Verdict> {
  const files = violations.filter((each) => each.gate === gate).flatMap((each) => Object.entries(each.files))
  const restore: (() => Promise<void>)[] = []
  try {
    for (const [path, text] of files) {
      const target = join(copy, path)
      const before = await readFile(target, 'utf8').catch(() => undefined)
      restore.push(async () => (before === undefined ? rm(target) : writeFile(target, before)))
      await mkdir(dirname(target), { recursive: true })
      await writeFile(target, text)
    }
    const { code, output } = await runCommand(['node', 'scripts/check.ts', '--only', gate, '--root', copy])
    return { code, findings: output.split(gate === 'lint' || gate === 'unused' ? /\n\s*\n/ : '\n') }
  } finally {
    for (const undo of restore) await undo()
  }
}

const violations: readonly Violation[] = [
  {
    rule: 'a feature that imports another feature',
    gate: 'lint',
    files: {
      'src/consumer/planted-feature-target.ts': `${header}export const target: number = 1\n`,
      'src/outbox/planted-feature.ts': `${header}export { target } from '../consumer/planted-feature-target.ts'\n`,
    },
    message: /src\/outbox imports core, postgres, transport\/port only/,
  },
  {
    rule: 'a feature loaded behind a dynamic import',
    gate: 'lint',
    files: {
      'src/consumer/planted-dynamic-target.ts': `${header}export const target: number = 1\n`,
      'src/outbox/planted-dynamic.ts': `${header}export const load = async (): Promise<unknown> => import('../consumer/planted-dynamic-target.ts')\n`,
    },
    message: /src\/outbox imports core, postgres, transport\/port only/,
  },
  {
    rule: 'pg outside src/postgres',
    gate: 'lint',
    files: { 'src/command/planted-pg.ts': `${header}export { Pool } from 'pg'\n` },
    message: /'pg' import is restricted/,
  },
  {
    rule: 'a broker SDK outside its transport',
    gate: 'lint',
    files: { 'src/transport/memory/planted-sdk.ts': `${header}export { PubSub } from '@google-cloud/pubsub'\n` },
    message: /src\/transport\/memory imports no package/,
  },
  {
    rule: 'the Pub/Sub server that imports waybill',
    gate: 'lint',
    files: { 'packages/pubsub-server/src/planted-waybill.ts': `${header}export { memory } from '../../../src/index.ts'\n` },
    message: /packages\/pubsub-server\/src imports nothing but itself/,
  },
  {
    rule: 'a path into a package that the tarball has not',
    gate: 'lint',
    files: {
      'src/testing/planted-path.ts': `${header}export { startPubsubServer } from '../../packages/pubsub-server/src/index.ts'\n`,
    },
    message: /src\/testing imports core, /,
  },
  {
    rule: 'a package in core',
    gate: 'lint',
    files: { 'src/core/planted-package.ts': `${header}export { z } from 'zod'\n` },
    message: /src\/core imports no package/,
  },
  {
    rule: 'the process in library code',
    gate: 'lint',
    files: { 'src/core/planted-process.ts': `${header}export const pid = (): number => process.pid\n` },
    message: /Library code does not touch the process/,
  },
  {
    rule: 'what the oldest Node we promise has not',
    gate: 'lint',
    files: { 'src/drill/planted-stack.ts': `${header}export const stack = (): object => new AsyncDisposableStack()\n` },
    message: /Node 22 has none/,
  },
  {
    rule: 'printing in library code',
    gate: 'lint',
    files: { 'src/core/planted-print.ts': `${header}export const say = (): void => console.log('planted')\n` },
    message: /no-console/,
  },
  {
    rule: 'modules that import each other',
    gate: 'lint',
    files: {
      'src/core/planted-cycle-one.ts': `${header}import { two } from './planted-cycle-two.ts'\n\nexport const one = (): number => two() + 1\n`,
      'src/core/planted-cycle-two.ts': `${header}import { one } from './planted-cycle-one.ts'\n\nexport const two = (): number => one() + 1\n`,
    },
    message: /Dependency cycle detected/,
  },
  {
    rule: 'a promise that is not awaited',
    gate: 'lint',
    files: {
      'src/core/planted-floating.ts': `${header}async function work(): Promise<void> {}\n\nexport function start(): void {\n  work()\n}\n`,
    },
    message: /no-floating-promises/,
  },
  {
    rule: 'a promise where a condition is meant',
    gate: 'lint',
    files: {
      'src/core/planted-misused.ts': `${header}export function decide(ready: () => Promise<boolean>): number {\n  if (ready()) return 1\n  return 2\n}\n`,
    },
    message: /no-misused-promises/,
  },
  {
    rule: 'a file past four hundred and fifty lines of code',
    gate: 'lint',
    files: {
      'src/core/planted-long-file.ts': `${header}${Array.from({ length: 451 }, (_, i) => `export const n${i}: number = ${i}\n`).join('')}`,
    },
    message: /max-lines/,
  },
  {
    rule: 'a function past eighty lines of code',
    gate: 'lint',
    files: {
      'src/core/planted-long-function.ts': `${header}export function long(): number {\n  let n = 0\n${'  n += 1\n'.repeat(80)}  return n\n}\n`,
    },
    message: /max-lines-per-function/,
  },
  {
    rule: 'code that is not formatted',
    gate: 'format',
    files: { 'src/core/planted.ts': `${header}export const x : number=1;\n` },
    message: /src\/core\/planted\.ts/,
  },
  {
    rule: 'a type error',
    gate: 'types',
    files: { 'src/core/planted.ts': `${header}export const x: number = 'one'\n` },
    message: /src\/core\/planted\.ts\(2,14\): error TS2322/,
  },
  {
    rule: 'a type error in an example',
    gate: 'examples',
    files: { 'examples/game/planted.ts': `${header}export const x: number = 'one'\n` },
    message: /examples\/game\/planted\.ts\(2,14\): error TS2322/,
  },
  {
    rule: 'an export without a use',
    gate: 'unused',
    files: {
      'src/core/planted-export.test.ts': `import { used } from './planted-export.ts'\n\nused()\n`,
      'src/core/planted-export.ts': `${header}export const used = (): number => 1\nexport const plantedExport = (): number => 2\n`,
    },
    message: /Unused exports[\s\S]*plantedExport/,
  },
  {
    rule: 'a file without an importer',
    gate: 'unused',
    files: { 'src/core/planted-alone.ts': `${header}export const alone: number = 1\n` },
    message: /Unused files[\s\S]*src\/core\/planted-alone\.ts/,
  },
  {
    rule: 'a name that says nothing',
    gate: 'tidy',
    files: { 'src/core/utils.ts': `${header}export const x: number = 1\n` },
    message: /src\/core\/utils\.ts:1: "utils" says nothing/,
  },
  {
    rule: 'a module without a header',
    gate: 'tidy',
    files: { 'src/core/planted-headless.ts': 'export const x: number = 1\n' },
    message: /src\/core\/planted-headless\.ts:1: a module opens with/,
  },
  {
    rule: 'a session-level SET',
    gate: 'tidy',
    files: { 'src/outbox/planted-set.sql.ts': `${header}export const text: string = \`set statement_timeout = 5\`\n` },
    message: /planted-set\.sql\.ts:2: session-level SET/,
  },
  {
    rule: 'an advisory lock',
    gate: 'tidy',
    files: { 'src/outbox/planted-lock.sql.ts': `${header}export const text: string = 'select pg_advisory_xact_lock(1)'\n` },
    message: /planted-lock\.sql\.ts:2: an advisory lock can be held/,
  },
  {
    rule: 'a lease measured by the start of the transaction',
    gate: 'tidy',
    files: { 'src/outbox/planted-lease.sql.ts': `${header}export const text: string = 'set lock_expires_at = now()'\n` },
    message: /planted-lease\.sql\.ts:2: a lease is measured with clock_timestamp/,
  },
  {
    rule: 'a statement outside a *.sql.ts file',
    gate: 'tidy',
    files: { 'src/outbox/planted-statement.ts': `${header}export const statement = (): unknown => sql\`select 1\`\n` },
    message: /src\/outbox\/planted-statement\.ts:2: SQL belongs in a named function/,
  },
  {
    rule: 'a signal that Node may keep for ever',
    gate: 'tidy',
    files: { 'src/core/planted-signal.ts': `${header}export const both: AbortSignal = AbortSignal.any([])\n` },
    message: /src\/core\/planted-signal\.ts:2: a composite that Node may keep for ever/,
  },
  {
    rule: 'an unfinished note without a number',
    gate: 'tidy',
    files: { 'src/core/planted-note.ts': `${header}// TO${'DO'} later\nexport const x: number = 1\n` },
    message: /planted-note\.ts:2: an unfinished note needs an issue number/,
  },
  {
    rule: 'a path of one machine',
    gate: 'tidy',
    files: { 'docs/planted.md': `Look in /${'home'}/somebody/project.\n` },
    message: /docs\/planted\.md:1: a path of one machine/,
  },
  {
    rule: 'a migration with a free name',
    gate: 'tidy',
    files: { 'sql/planted.sql': 'select 1;\n' },
    message: /a migration is named NNNN_verb_noun\.sql/,
  },
  {
    rule: 'import rules that are not those of the plan',
    gate: 'rooms',
    files: { '.oxlintrc.json': '{}\n' },
    message: /Stale\. Run: node scripts\/rooms\.ts/,
  },
  {
    rule: 'a place on the list of what is left that breaks the rule no more',
    gate: 'rooms',
    files: { 'scripts/rooms-left.json': '{ "hub cap": { "src/core/errors.ts": 20 } }\n' },
    message: /src\/core\/errors\.ts breaks "hub cap" no more/,
  },
  {
    rule: 'a folder with more files than can be seen',
    gate: 'rooms',
    files: Object.fromEntries(
      Array.from({ length: 15 }, (_, i) => [`src/planted/p${i}.ts`, `${header}export const planted${i}: number = ${i}\n`]),
    ),
    message: /15 sources in one folder, 14 at most/,
    at: 'src/planted',
  },
  {
    rule: 'a small file that only its neighbour imports',
    gate: 'rooms',
    files: {
      'src/core/planted-part.ts': `${header}export const plantedPart: number = 1\n`,
      'src/core/planted-whole.ts': `${header}import { plantedPart } from './planted-part.ts'\n\nexport const plantedWhole: number = plantedPart\n`,
    },
    message: /small, and only planted-whole\.ts imports it/,
    at: 'src/core/planted-part.ts',
  },
  {
    rule: 'a room that is not in the plan',
    gate: 'rooms',
    files: { 'src/outbox/planted-room/room.ts': `${header}export const plantedRoom: number = 1\n` },
    message: /outbox planted-room: stands in the plan or in the tree alone/,
    at: 'outbox planted-room',
  },
  {
    rule: 'a room that imports a later one, if only a type',
    gate: 'rooms',
    files: {
      'src/consumer/model/planted-order.ts': `${header}export type { PlantedLate } from '../batch/planted-late.ts'\n`,
      'src/consumer/batch/planted-late.ts': `${header}export interface PlantedLate {}\n`,
    },
    message: /model comes before batch/,
    at: 'src/consumer/model/planted-order.ts',
  },
  {
    rule: 'rooms beside each other of which one imports the other',
    gate: 'rooms',
    files: {
      'src/consumer/stored/planted-beside.ts': `${header}export { plantedBeside } from '../receive/planted-beside.ts'\n`,
      'src/consumer/receive/planted-beside.ts': `${header}export const plantedBeside: number = 1\n`,
    },
    message: /stored comes before receive, or beside it/,
    at: 'src/consumer/stored/planted-beside.ts',
  },
  {
    rule: 'a feature entered by another way than its face',
    gate: 'rooms',
    files: {
      'src/ops/status/planted-face.ts': `${header}export { plantedInside } from '../../consumer/batch/planted-inside.ts'\n`,
      'src/consumer/batch/planted-inside.ts': `${header}export const plantedInside: number = 1\n`,
    },
    message: /1 files of other features import it, and it is not a face/,
    at: 'src/consumer/batch/planted-inside.ts',
  },
  {
    rule: 'one word for two things',
    gate: 'rooms',
    files: {
      'src/core/planted-word.ts': `${header}export const plantedWord: number = 1\n`,
      'src/outbox/planted-word.ts': `${header}export const plantedWord: number = 2\n`,
    },
    message: /plantedWord: exported by 2 files/,
    at: 'src/outbox/planted-word.ts',
  },
  {
    rule: 'a test without its source',
    gate: 'rooms',
    files: { 'src/core/planted-lonely.test.ts': `import { test } from 'vitest'\n\ntest.todo('planted')\n` },
    message: /has no source of its name beside it/,
  },
  {
    rule: 'pronouns in the place of nouns',
    gate: 'rooms',
    files: {
      'src/core/planted-english.ts': `/** For whom it may concern: ${`no${'body'} `.repeat(3)}. */\nexport const plantedEnglish: number = 1\n`,
    },
    message: /3 pronouns in the place of a noun/,
  },
  {
    rule: 'a file that imports everything',
    gate: 'rooms',
    files: {
      'src/core/planted-hub.ts': header + Array.from({ length: 17 }, (_, i) => `import './planted-spoke-${i}.ts'\n`).join(''),
    },
    message: /imports 17 files, 16 at most/,
  },
  {
    rule: 'a reference page that says something else than the source',
    gate: 'docs',
    files: { 'docs/reference/errors.md': '<!-- made by scripts/docs.ts: do not edit -->\n\nold\n\n<!-- end -->\n' },
    message: /Stale: .*docs\/reference\/errors\.md.* Run: node scripts\/docs\.ts/,
  },
  {
    rule: 'a picture of other rooms than there are',
    gate: 'docs',
    files: { 'docs/map-dark.svg': '<svg/>\n' },
    message: /docs\/map-dark\.svg/,
  },
  {
    rule: 'an export that the tarball does not hold',
    gate: 'package',
    files: {
      'tsconfig.build.json':
        '{ "extends": "./tsconfig.json", "compilerOptions": { "noEmit": false, "rootDir": "src" }, "include": ["src/core"] }\n',
    },
    message: /dist\/index\.js/,
    at: 'dist/index.js',
  },
]

describe('each gate of `npm run check` finds the violation planted for it', () => {
  test.each(violations)('$gate: $rule', async ({ gate, files, message, at }) => {
    const { code, findings } = await verdictOf(gate)
    const places = at === undefined ? Object.keys(files) : [at]
    const isFound = (finding: string): boolean => places.some((place) => finding.includes(place)) && message.test(finding)
    expect(findings).toContainEqual(expect.toSatisfy(isFound))
    expect(code).toBe(1)
  })
})

test('`npm test` forgives nothing: what a wait saw in the one run is final', async () => {
  const planted = join(copy, 'scripts', 'planted.test.ts')
  await writeFile(planted, doubledOnce)
  try {
    const { code, output } = await runCommand(['node', join(copy, 'scripts', 'test.ts'), 'scripts/planted.test.ts'], {
      cwd: copy,
    })
    expect({ code, last: output.trimEnd().split('\n').at(-1) }).toEqual({ code: 1, last: '0 passed, 1 failed, 0 skipped' })
  } finally {
    await rm(planted)
  }
})

/** Its first run waits in vain, because an effect is doubled; another would not. */
const doubledOnce = `${header}import { existsSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { eventually } from '../src/testing/kit/eventually.ts'

test('each of four effects happens once', async () => {
  const mark = new URL('./planted', import.meta.url)
  const effects = existsSync(mark) ? 4 : 5
  writeFileSync(mark, '')
  await eventually(() => expect(effects).toBe(4), { timeoutMs: 50 })
})
`
