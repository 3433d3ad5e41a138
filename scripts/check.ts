/**
 * `npm run check`: every rule of this repository that needs no running service, in seconds.
 *
 *   format   oxfmt                          lint     oxlint: correctness, promises, import boundaries, cycles, sizes
 *   types    tsc                            unused   knip: files, exports and dependencies nobody uses
 *   tidy     our own small rules            package  build, pack, publint, attw
 *   docs     reference pages up to date    examples tsc, for each folder of examples
 *   rooms    the plan of the house: scripts/layers.ts
 *
 * Gates run at the same time; each prints one line. A gate that fails also prints what its tool said, and the exit code is 1.
 * `--only lint,types` runs those alone; `--root <folder>` checks another copy of the tree.
 */
import { globSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { resolve } from 'node:path'
import { checkPackages } from './check-packages.ts'
import { repositoryRoot, runCommand } from './run-command.ts'
import { tidy } from './tidy.ts'

interface Verdict {
  readonly ok: boolean
  readonly output: string
}

type Gate = (root: string) => Promise<Verdict>

const gates: Readonly<Record<string, Gate>> = {
  format: tool('oxfmt', '--check', '--disable-nested-config'),
  lint: tool('oxlint', '--disable-nested-config'),
  types: tool('tsc', '--noEmit', '-p', 'tsconfig.json'),
  examples: async (root) => {
    const folders = globSync('examples/*/tsconfig.json', { cwd: root })
    const verdicts = await Promise.all(folders.map((folder) => tool('tsc', '--noEmit', '-p', folder)(root)))
    return { ok: verdicts.every(({ ok }) => ok), output: verdicts.map(({ output }) => output).join('') }
  },
  unused: tool('knip', '--no-progress'),
  tidy: async (root) => {
    const findings = await tidy(root)
    return { ok: findings.length === 0, output: findings.join('\n') }
  },
  rooms: tool('node', 'scripts/rooms.ts', '--check'),
  docs: tool('node', 'scripts/docs.ts', '--check'),
  package: checkPackages,
}

process.exitCode = (await main()) ? 0 : 1

async function main(): Promise<boolean> {
  const { values } = parseArgs({ options: { only: { type: 'string' }, root: { type: 'string' } } })
  const names = values.only?.split(',') ?? Object.keys(gates)
  const root = resolve(values.root ?? repositoryRoot)
  const verdicts = await Promise.all(names.map(async (name) => report(name, root)))
  return verdicts.every(Boolean)
}

async function report(name: string, root: string): Promise<boolean> {
  const gate = gates[name]
  if (gate === undefined) throw new Error(`There is no gate "${name}". Gates: ${Object.keys(gates).join(', ')}.`)
  const startedAt = performance.now()
  const { ok, output } = await gate(root)
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  console.log(`${ok ? 'ok    ' : 'FAILED'} ${name.padEnd(8)} ${seconds.padStart(5)} s`)
  if (!ok) console.log(output.trimEnd().replaceAll(/^/gm, '       '))
  return ok
}

function tool(...command: readonly string[]): Gate {
  return async (root) => {
    const { code, output } = await runCommand(command, { cwd: root })
    return { ok: code === 0, output }
  }
}
