/**
 * Builds the packages and packs them as they are published, without touching the tree's own dist folders.
 *
 * Each build goes to a staging folder that holds what its package.json's `files` names and nothing else, so a tarball is the same
 * whether or not somebody built here before. A package in `packages` runs from source in this repository: `publishConfig` of its
 * package.json has the entries as they are published.
 */
import { cp, readFile, rm, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { basename, join } from 'node:path'
import { buildPackages, packageFolders } from './build-packages.ts'
import { runCommand } from './run-command.ts'

interface Manifest {
  readonly name: string
  readonly version: string
  readonly files: readonly string[]
  readonly repository?: unknown
  readonly publishConfig?: object
}

/** Packs the packages whose source is in `root` and leaves the tarballs in `into`: the path of each, by the package's name. */
export async function packPackages(root: string, into: string): Promise<Readonly<Record<string, string>>> {
  const stageOf = (folder: string): string => join(into, 'stage', basename(join(root, folder)))
  await buildPackages(root, (folder) => join(stageOf(folder), 'dist'))
  const { repository } = await readManifest(root)
  const tarballs: Record<string, string> = {}
  for (const folder of packageFolders) {
    const stage = stageOf(folder)
    const manifest = { ...(await readManifest(join(root, folder))), repository }
    for (const path of ['README.md', ...manifest.files.filter((each) => each !== 'dist')]) {
      if (existsSync(join(root, folder, path))) await cp(join(root, folder, path), join(stage, path), { recursive: true })
    }
    await cp(join(root, 'LICENSE'), join(stage, 'LICENSE'))
    const published = {
      ...manifest,
      ...manifest.publishConfig,
      private: undefined,
      publishConfig: undefined,
      workspaces: undefined,
    }
    await writeFile(join(stage, 'package.json'), JSON.stringify(published, undefined, 2))
    await must(['npm', 'pack', '--ignore-scripts', '--pack-destination', into], stage)
    tarballs[manifest.name] = join(into, `${manifest.name}-${manifest.version}.tgz`)
  }
  await rm(join(into, 'stage'), { recursive: true })
  return tarballs
}

async function readManifest(folder: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as Manifest
}

async function must(command: readonly string[], cwd: string): Promise<void> {
  const { code, output } = await runCommand(command, { cwd })
  if (code !== 0) throw new Error(`${command.join(' ')} failed (exit code ${code}):\n${output}`)
}
