/**
 * Whom the services that we start run as.
 *
 * PostgreSQL and PgBouncer refuse to run as root, and containers mostly are root. There an existing unprivileged
 * account is used; nothing is added to the machine. Anybody else runs the services as themselves. The account must
 * be a named one, because initdb looks its own name up.
 */
import { readFileSync, statSync } from 'node:fs'
import { dirname, resolve } from 'node:path'

import { WaybillError } from '../../core/errors.ts'

/** The account of a started service, in the form that `spawn` takes. */
export interface ServiceUser {
  readonly uid: number
  readonly gid: number
}

/** The account for services that refuse root, or undefined where the current one will do. */
export function serviceUser(): ServiceUser | undefined {
  if (process.getuid?.() !== 0) return undefined
  const accounts = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
  for (const name of ['postgres', 'nobody']) {
    const account = accounts.find((fields) => fields[0] === name)
    const uid = Number(account?.[2])
    if (uid > 0) return { uid, gid: Number(account?.[3]) }
  }
  throw new WaybillError(
    'UNAVAILABLE',
    'PostgreSQL refuses to run as root, and this machine has neither a "postgres" nor a "nobody" account to run it as. ' +
      'Add one, or run as another user.',
  )
}

/** Whether the account can reach what lies in the folder: every folder above must let others pass. */
export function isReachable(folder: string, user: ServiceUser | undefined): boolean {
  if (user === undefined) return true
  let path = resolve(folder)
  for (;;) {
    const { mode, uid } = statSync(path)
    if ((mode & 0o001) === 0 && !(uid === user.uid && (mode & 0o100) !== 0)) return false
    const parent = dirname(path)
    if (parent === path) return true
    path = parent
  }
}
