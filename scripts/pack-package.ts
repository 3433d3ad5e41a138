/**
 * Builds the package and packs it as `npm publish` would, without touching the tree's own dist folder.
 *
 * The build goes to a staging folder that holds what package.json's `files` names and nothing else, so the tarball is the same
 * whether or not somebody built here before.
 */
import { cp, mkdir, readFile, readdir } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { buildPackage } from './build-package.ts'
import { runCommand } from './run-command.ts'

export interface Packed {
  readonly tarball: string
  readonly manifest: { readonly name: string; readonly version: string; readonly bin: Readonly<Record<string, string>> }
}

/** Packs the package whose source is in `root` and leaves the tarball in `into`. */
export async function packPackage(root: string, into: string): Promise<Packed> {
  const stage = join(into, 'stage')
  await mkdir(stage, { recursive: true })
  await buildPackage(root, join(stage, 'dist'))
  const manifest: Packed['manifest'] & { readonly files: readonly string[] } = JSON.parse(
    await readFile(join(root, 'package.json'), 'utf8'),
  )
  const shipped = ['package.json', 'README.md', 'LICENSE', ...manifest.files.filter((path) => path !== 'dist')]
  for (const path of shipped.filter((each) => existsSync(join(root, each)))) {
    await cp(join(root, path), join(stage, path), { recursive: true })
  }
  await must(['npm', 'pack', '--ignore-scripts', '--pack-destination', into], stage)
  const tarball = (await readdir(into)).find((name) => name.endsWith('.tgz'))
  if (tarball === undefined) throw new Error(`npm pack left no tarball in ${into}.`)
  return { tarball: join(into, tarball), manifest }
}

async function must(command: readonly string[], cwd: string): Promise<void> {
  const { code, output } = await runCommand(command, { cwd })
  if (code !== 0) throw new Error(`${command.join(' ')} failed (exit code ${code}):\n${output}`)
}
