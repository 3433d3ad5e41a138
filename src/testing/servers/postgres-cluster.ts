/**
 * Makes data directories quickly.
 *
 * initdb runs once per machine, PostgreSQL version and account, and leaves a template in the cache; every cluster
 * after that is a copy of it. The superuser is `postgres`, and everybody on the loopback interface is trusted: the
 * server listens nowhere else.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chownSync, constants, copyFileSync, existsSync, mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { errorMessage, WaybillError } from '../../core/errors.ts'
import { cached } from '../process/cache-folder.ts'
import type { ServiceUser } from '../process/service-user.ts'

const run = promisify(execFile)

/** What a cluster is made with. */
export interface ClusterSource {
  readonly binDir: string
  readonly cacheDir: string
  readonly user: ServiceUser | undefined
}

/** Makes a new cluster in `dataDir`, which must not exist, and returns the version of its server. */
export async function createCluster(source: ClusterSource, dataDir: string): Promise<string> {
  const version = await serverVersion(source.binDir)
  const key = createHash('sha256')
    .update(JSON.stringify([source.binDir, version, source.user?.uid, initdbArguments]))
    .digest('hex')
  const template = await cached(source.cacheDir, `cluster-${version}-${key.slice(0, 12)}`, (draft) => initdb(source, draft))
  copyOwned(template, dataDir, source.user)
  return version
}

// C collation sorts alike on every machine. Small log segments make a small copy.
const initdbArguments = [
  ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C'],
  ['--wal-segsize=4', '--no-sync', '--no-instructions'],
].flat()

async function initdb({ binDir, user }: ClusterSource, folder: string): Promise<void> {
  if (user !== undefined) chownSync(folder, user.uid, user.gid)
  try {
    await run(join(binDir, 'initdb'), [...initdbArguments, `--pgdata=${folder}`], { ...user, cwd: folder })
  } catch (cause) {
    throw new WaybillError('UNAVAILABLE', `initdb in ${binDir} failed: ${errorMessage(cause)}`, { cause })
  }
}

async function serverVersion(binDir: string): Promise<string> {
  const program = join(binDir, process.platform === 'win32' ? 'postgres.exe' : 'postgres')
  if (!existsSync(program)) {
    throw new WaybillError(
      'NOT_FOUND',
      `There is no PostgreSQL server at ${program}. Pass the folder that holds "postgres" and "initdb" as binDir.`,
    )
  }
  const { stdout } = await run(program, ['--version'])
  return /\d+(\.\d+)?\w*/.exec(stdout)?.[0] ?? stdout.trim()
}

/** Synchronous on purpose: for a thousand small files this is several times faster than the promises would be. */
function copyOwned(from: string, to: string, user: ServiceUser | undefined): void {
  mkdirSync(to, { mode: 0o700 })
  if (user !== undefined) chownSync(to, user.uid, user.gid)
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const source = join(from, entry.name)
    const target = join(to, entry.name)
    if (entry.isDirectory()) {
      copyOwned(source, target, user)
    } else {
      copyFileSync(source, target, constants.COPYFILE_FICLONE)
      if (user !== undefined) chownSync(target, user.uid, user.gid)
    }
  }
}
