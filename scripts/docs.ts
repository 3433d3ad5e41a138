/**
 * Writes the tables of docs/reference from the sources they describe, and the picture of ARCHITECTURE.md from the plan of the house.
 *
 *   node scripts/docs.ts            writes them
 *   node scripts/docs.ts --check    writes nothing, names the pages that are stale, and exits with 1 if there are any
 */
import { globSync, readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { commands } from '../src/cli/commands.ts'
import { commandHelp, overview } from '../src/cli/frame/help.ts'
import { defaults, fixedDefaults } from '../src/core/defaults.ts'
import { drawMap, pictures, type Theme, withoutCounts } from './draw-map.ts'
import { optionFunctions } from './option-functions.ts'
import { optionPages, schemaTable } from './reference-catalogues.ts'
import { defaultTable, errorTable, fillPage, signalTable } from './reference-tables.ts'
import { repositoryRoot } from './run-command.ts'
import { readSources } from './source-graph.ts'

/** Each page, as it is to be. */
const pages: Readonly<Record<string, (page: string) => string>> = {
  'docs/reference/cli.md': fillHelp,
  'docs/reference/defaults.md': (page) => fillPage(page, defaultTable(defaults, fixedDefaults)),
  'docs/reference/errors.md': (page) => fillPage(page, errorTable(read('src/core/errors.ts'))),
  'docs/reference/options.md': (page) => fillPage(page, optionPages(optionFunctions, read)),
  'docs/reference/tables.md': (page) =>
    fillPage(page, schemaTable(migrations(), read('src/postgres/schema/schema.snapshot.txt'))),
  'docs/reference/signals.md': (page) => fillPage(page, signalTable(read('src/core/signals.ts'))),
  ...Object.fromEntries(Object.entries(pictures).map(([path, theme]) => [path, (old: string) => redraw(old, theme)])),
}

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })
  const stale: string[] = []
  for (const [path, fill] of Object.entries(pages)) {
    const page = read(path)
    const fresh = fill(page)
    if (fresh === page) continue
    stale.push(path)
    if (!values.check) await writeFile(join(repositoryRoot, path), fresh)
  }
  if (stale.length === 0) return 0
  console.log(values.check ? `Stale: ${stale.join(', ')}. Run: node scripts/docs.ts` : `Wrote ${stale.join(', ')}.`)
  return values.check ? 1 : 0
}

/** The help of each command in its place, and the list of them all. */
function fillHelp(page: string): string {
  return page.replaceAll(/```text\nUsage: waybill (.+?)(?: <[a-z-]+>)? \[options\]\n[^`]*```/g, (block, words: string) => {
    const command = commands[words]
    if (command !== undefined) return `\`\`\`text\n${commandHelp(words, command)}\n\`\`\``
    return words === '' || words === '<command>' ? `\`\`\`text\n${overview(commands, '')}\n\`\`\`` : block
  })
}

/** A picture stays as it is while only its counts are old. */
function redraw(old: string, theme: Theme): string {
  const fresh = drawMap(readSources(repositoryRoot), theme)
  return withoutCounts(old) === withoutCounts(fresh) ? old : fresh
}

function migrations(): string {
  return globSync('sql/*.sql', { cwd: repositoryRoot }).toSorted().map(read).join('\n')
}

function read(path: string): string {
  return readFileSync(join(repositoryRoot, path), 'utf8')
}
