/**
 * Compiles the packages of this repository in one go: what tsc makes of their `src`, and the files in there that tsc leaves where
 * they are.
 */
import { globSync } from 'node:fs'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runCommand } from './run-command.ts'

/** The folder of each. */
export const packageFolders: readonly string[] = ['.', 'packages/pubsub-server']

/** The page of the dashboard, and the API of Pub/Sub. */
const uncompiled = ['src/**/page/*', 'packages/*/src/**/*.proto']

/** Fills the dist folder of each package; what was there before is gone. Throws what tsc said if it fails. */
export async function buildPackages(root: string, distOf: (folder: string) => string): Promise<void> {
  const compiled = await mkdtemp(join(tmpdir(), 'waybill-build-'))
  try {
    const { code, output } = await runCommand(['tsc', '-p', 'tsconfig.build.json', '--outDir', compiled], { cwd: root })
    if (code !== 0) throw new Error(`tsc failed (exit code ${code}):\n${output}`)
    for (const file of globSync(uncompiled, { cwd: root })) await cp(join(root, file), join(compiled, file))
    for (const folder of packageFolders) {
      const dist = distOf(folder)
      await rm(dist, { recursive: true, force: true })
      await cp(join(compiled, folder, 'src'), dist, { recursive: true })
    }
  } finally {
    await rm(compiled, { recursive: true, force: true })
  }
}
