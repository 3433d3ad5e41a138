/**
 * A PgBouncer in transaction mode in front of a server, for proving that nothing relies on session state.
 *
 * Every database and role of the server can be reached through it. It is stricter than many in production: no
 * prepared statement survives a transaction, so whoever uses a named one fails here first.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { WaybillError } from '../../core/errors.ts'
import { findProgram } from '../process/find-program.ts'
import { onFreePort } from '../process/free-port.ts'
import { startService } from '../process/service-process.ts'
import type { ServiceProcess } from '../process/service-process.ts'

/** A running PgBouncer. */
export interface PgBouncer extends ServiceProcess {
  readonly host: string
  readonly port: number
  /** The address that reaches the same database through the pooler. */
  url(original: string): string
}

/** The program's path, or undefined where the machine has none. */
export function findPgBouncer(): string | undefined {
  return findProgram('pgbouncer')
}

/** Starts a PgBouncer in transaction mode in front of the server at the address. */
export async function startPgBouncer(serverUrl: string): Promise<PgBouncer> {
  const program = findPgBouncer()
  if (program === undefined) {
    throw new WaybillError(
      'NOT_FOUND',
      'There is no "pgbouncer" on this machine. Install it (Debian: apt-get install pgbouncer).',
    )
  }
  return await onFreePort((port) => startOn(port, { program, server: new URL(serverUrl) }))
}

async function startOn(port: number, { program, server }: { program: string; server: URL }): Promise<PgBouncer> {
  const host = '127.0.0.1'
  const service = await startService({
    name: 'pgbouncer',
    program,
    readyText: 'process up',
    prepare: (folder) => {
      const users = join(folder, 'users.txt')
      const config = join(folder, 'pgbouncer.ini')
      writeFileSync(users, `"${decodeURIComponent(server.username)}" "${decodeURIComponent(server.password)}"\n`, { mode: 0o644 })
      writeFileSync(config, configuration({ server, users, port }), { mode: 0o644 })
      return [config]
    },
  })
  const url = (original: string): string => {
    const address = new URL(original)
    address.host = `${host}:${port}`
    return address.href
  }
  return { ...service, host, port, url }
}

/** Roles are looked up in the server when they connect, so that tests can make them at any time. */
function configuration({ server, users, port }: { server: URL; users: string; port: number }): string {
  return `[databases]
* = host=${server.hostname} port=${server.port} auth_user=${decodeURIComponent(server.username)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
auth_query = select usename, passwd from pg_shadow where usename = $1
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 20
server_idle_timeout = 5
ignore_startup_parameters = extra_float_digits
`
}
