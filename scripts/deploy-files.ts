/**
 * Writes those files of deploy/ that the CLI makes: what Pub/Sub needs as Terraform, and the schema as a migration of Supabase.
 *
 *   node scripts/deploy-files.ts            writes them
 *   node scripts/deploy-files.ts --check    writes nothing, names those that are stale, and exits with 1 if there are any
 */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { repositoryRoot, runCommand } from './run-command.ts'

const files: Readonly<Record<string, readonly string[]>> = {
  'deploy/terraform/pubsub/pubsub.tf': ['provision', '--terraform'],
  'deploy/supabase/migrations/20250101000000_waybill.sql': ['migrate', 'sql', '--roles'],
}

process.exitCode = await main()

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })
  const stale: string[] = []
  for (const [path, words] of Object.entries(files)) {
    const fresh = await print(words)
    const found = await readFile(join(repositoryRoot, path), 'utf8').catch(() => '')
    if (found === fresh) continue
    stale.push(path)
    if (!values.check) await writeFile(join(repositoryRoot, path), fresh)
  }
  if (stale.length === 0) return 0
  console.log(values.check ? `Stale: ${stale.join(', ')}. Run: node scripts/deploy-files.ts` : `Wrote ${stale.join(', ')}.`)
  return values.check ? 1 : 0
}

/** What `waybill` prints with the configuration of deploy/. */
async function print(words: readonly string[]): Promise<string> {
  const cli = ['node', '--import', './scripts/from-source.ts', 'src/cli/main.ts']
  const { code, output } = await runCommand([...cli, ...words, '--config', 'deploy/waybill.config.ts'])
  if (code !== 0) throw new Error(`waybill ${words.join(' ')} ended with ${code}:\n${output}`)
  return `${output.trimEnd()}\n`
}
