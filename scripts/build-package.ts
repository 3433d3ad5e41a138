/**
 * Compiles the package: what tsc makes of `src`, and the files of the dashboard's page, which tsc leaves where they are.
 */
import { globSync } from 'node:fs'
import { cp, rm } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { runCommand } from './run-command.ts'

const pages = 'src/**/page/*'

/** Throws what tsc said if it fails. Whatever was in `into` before is gone. */
export async function buildPackage(root: string, into: string): Promise<void> {
  await rm(into, { recursive: true, force: true })
  const { code, output } = await runCommand(['tsc', '-p', 'tsconfig.build.json', '--outDir', into], { cwd: root })
  if (code !== 0) throw new Error(`tsc failed (exit code ${code}):\n${output}`)
  for (const file of globSync(pages, { cwd: root })) await cp(join(root, file), join(into, relative('src', file)))
}
