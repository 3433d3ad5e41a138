/**
 * Writes the tables of docs/reference from the sources they describe.
 *
 *   node scripts/docs.ts            writes them
 *   node scripts/docs.ts --check    writes nothing, names the pages that are stale, and exits with 1 if there are any
 */
import { globSync, readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { defaults, fixedDefaults } from '../src/core/defaults.ts'
import { optionFunctions } from './option-functions.ts'
import { optionPages, schemaTable } from './reference-catalogues.ts'
import { defaultTable, errorTable, fillPage, signalTable } from './reference-tables.ts'
import { repositoryRoot } from './run-command.ts'

const pages: Readonly<Record<string, () => Promise<string>>> = {
  'docs/reference/defaults.md': async () => await Promise.resolve(defaultTable(defaults, fixedDefaults)),
  'docs/reference/errors.md': async () => errorTable(await read('src/core/errors.ts')),
  'docs/reference/options.md': async () =>
    await Promise.resolve(optionPages(optionFunctions, (file) => readFileSync(join(repositoryRoot, file), 'utf8'))),
  'docs/reference/tables.md': async () => schemaTable(await migrations(), await read('src/postgres/schema.snapshot.txt')),
  'docs/reference/signals.md': async () => signalTable(await read('src/core/signals.ts')),
}

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })
  const stale: string[] = []
  for (const [path, makeTable] of Object.entries(pages)) {
    const page = await read(path)
    const fresh = fillPage(page, await makeTable())
    if (fresh === page) continue
    stale.push(path)
    if (!values.check) await writeFile(join(repositoryRoot, path), fresh)
  }
  if (stale.length === 0) return 0
  console.log(values.check ? `Stale: ${stale.join(', ')}. Run: node scripts/docs.ts` : `Wrote ${stale.join(', ')}.`)
  return values.check ? 1 : 0
}

async function migrations(): Promise<string> {
  const files = globSync('sql/*.sql', { cwd: repositoryRoot }).toSorted()
  return (await Promise.all(files.map(read))).join('\n')
}

async function read(path: string): Promise<string> {
  return await readFile(join(repositoryRoot, path), 'utf8')
}
