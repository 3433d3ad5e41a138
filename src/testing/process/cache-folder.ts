/**
 * Things that are made once per machine and then shared by all processes: healed binaries, template clusters.
 *
 * Safe when any number of processes want the same thing at once: each builds in a folder of its own and renames it
 * into place, and the losers throw theirs away. What is in place is therefore always complete. A folder that another
 * account could write to is never trusted.
 */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from 'node:fs'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { isReachable, serviceUser } from './service-user.ts'

/** Returns the folder `name` of the cache, and builds it first where it is missing. */
export async function cached(cacheDir: string, name: string, build: (folder: string) => Promise<void>): Promise<string> {
  const final = join(cacheDir, name)
  if (existsSync(final)) return final
  const draft = mkdtempSync(join(cacheDir, '.building-'))
  try {
    await build(draft)
    renameSync(draft, final)
  } catch (error) {
    rmSync(draft, { recursive: true, force: true })
    if (!existsSync(final)) throw error
  }
  return final
}

/** The cache of this account: the usual place where services can reach it, else the temporary folder. */
export function cacheFolder(): string {
  const home = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache')
  const shared = join(tmpdir(), `waybill-cache-${process.getuid?.() ?? 'user'}`)
  for (const folder of [join(home, 'waybill'), shared]) {
    if (isUsable(folder)) return folder
  }
  const own = mkdtempSync(join(reachableTmpdir(), 'waybill-cache-'))
  chmodSync(own, 0o755)
  return own
}

/**
 * A folder for the files of one running service, which its account owns and can reach. WAYBILL_SERVICE_FOLDER says where:
 * in memory (/dev/shm) a PostgreSQL makes databases and tables without waiting for a disk.
 */
export function temporaryFolder(prefix: string): string {
  const chosen = process.env['WAYBILL_SERVICE_FOLDER']
  if (chosen !== undefined && !(existsSync(chosen) && isReachable(chosen, serviceUser()))) {
    throw new WaybillError(
      'INVALID_OPTION',
      `WAYBILL_SERVICE_FOLDER is "${chosen}", which the account of the services cannot reach. Name a folder that exists and that others may pass through, or unset it.`,
    )
  }
  return mkdtempSync(join(chosen ?? reachableTmpdir(), prefix))
}

function reachableTmpdir(): string {
  return isReachable(tmpdir(), serviceUser()) ? tmpdir() : '/tmp'
}

function isUsable(folder: string): boolean {
  try {
    const isNew = mkdirSync(folder, { recursive: true }) !== undefined
    // The umask may have taken away what the service's account needs.
    if (isNew) chmodSync(folder, 0o755)
    const { uid, mode } = statSync(folder)
    const isOurs = process.getuid === undefined || (uid === process.getuid() && (mode & 0o022) === 0)
    return isOurs && isReachable(folder, serviceUser()) && canWrite(folder)
  } catch {
    return false
  }
}

function canWrite(folder: string): boolean {
  rmSync(mkdtempSync(join(folder, '.probe-')), { recursive: true })
  return true
}
