/**
 * The packages as their users get them: every export resolves to a file that is in the tarball, with types, for ESM and `require`.
 *
 * publint reads the manifest, attw resolves each entry point as TypeScript would. `esm-only` because there is no CommonJS build:
 * Node ≥ 22.12 loads ES modules by `require`.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packPackages } from './pack-packages.ts'
import { runCommand } from './run-command.ts'

export async function checkPackages(root: string): Promise<{ ok: boolean; output: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'waybill-check-'))
  try {
    const tarballs = Object.values(await packPackages(root, folder))
    const results = await Promise.all(
      tarballs.flatMap((tarball) => [
        runCommand(['publint', '--strict', tarball]),
        runCommand(['attw', '--profile', 'esm-only', '--no-definitely-typed', '--no-emoji', tarball]),
      ]),
    )
    return { ok: results.every(({ code }) => code === 0), output: results.map(({ output }) => output).join('\n') }
  } catch (error) {
    return { ok: false, output: error instanceof Error ? error.message : String(error) }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
