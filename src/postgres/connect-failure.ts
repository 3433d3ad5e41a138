/**
 * Why a database could not be reached or used, as a sentence with what to do; never with the password.
 */
import { errorMessage, isWaybillError, WaybillError } from '../core/errors.ts'
import { sqlState } from './query/sql-state.ts'

/** What to show of a database's address. */
export function databaseLabel(url: string): string {
  const { hostname, port, pathname, username, searchParams } = parseDatabaseUrl(url)
  const user = username === '' ? '' : `${decodeURIComponent(username)}@`
  const host = searchParams.get('host') ?? (hostname === '' ? 'localhost' : hostname)
  return `${user}${host}:${port === '' ? '5432' : port}${pathname}`
}

/** The address, or INVALID_OPTION without showing what was given: it may hold a password. */
export function parseDatabaseUrl(url: string): URL {
  // `postgres://user:password@/database?host=/socket/folder` names a socket, and no URL may have a user without a host.
  const whole = url.replace('@/', '@localhost/')
  const parsed = URL.canParse(whole) ? new URL(whole) : undefined
  if (parsed === undefined || !['postgres:', 'postgresql:'].includes(parsed.protocol)) {
    throw new WaybillError(
      'INVALID_OPTION',
      'The database URL is not one of Postgres: postgres://user:password@host:5432/database.',
    )
  }
  return parsed
}

/** Turns what the driver threw while connecting into a sentence; anything else is returned as it is. */
export function explainConnectFailure(error: unknown, url: string): unknown {
  if (isWaybillError(error)) return error
  const reason = reasonOf(error)
  if (reason === undefined) return error
  const [what, advice] = reason
  return new WaybillError('UNAVAILABLE', `The database at ${databaseLabel(url)} ${what}. ${advice}`, { cause: error })
}

/** Turns what the server does not let a role do into its own sentence and who may; anything else is returned as it is. */
export function explainForbidden(error: unknown, whoMay: string): unknown {
  if (isWaybillError(error) || sqlState(error) !== '42501') return error
  const { detail } = error as { readonly detail?: unknown }
  const said = typeof detail === 'string' && detail !== '' ? `${errorMessage(error)} (${detail})` : errorMessage(error)
  return new WaybillError('FORBIDDEN', `This database role may not do that: ${said}. ${whoMay}`, { cause: error })
}

function reasonOf(error: unknown): readonly [string, string] | undefined {
  const { code, syscall } = (error ?? {}) as { readonly code?: unknown; readonly syscall?: unknown }
  // A file that the URL names is missing, such as a certificate: what was thrown says which.
  if (code === 'ENOENT' && syscall !== 'connect') return undefined
  const known = reasons[sqlState(error) ?? ''] ?? reasons[typeof code === 'string' ? code : '']
  if (known !== undefined) return known
  return /timeout exceeded when trying to connect/.test(errorMessage(error)) ? reasons['ETIMEDOUT'] : undefined
}

const reasons: Readonly<Record<string, readonly [string, string]>> = {
  ECONNREFUSED: ['refused the connection', 'Is it running, and is that its port? Check the database URL.'],
  ENOENT: ['has no socket there', 'Is it running, and is that its folder? Check the host in the database URL.'],
  ENOTFOUND: ['was not found by name', 'Check the host in the database URL.'],
  EAI_AGAIN: ['was not found by name', 'Check the host in the database URL, and the name service.'],
  ETIMEDOUT: ['did not answer in time', 'Check the host and port in the database URL, and firewalls between.'],
  EHOSTUNREACH: ['cannot be reached', 'Check the host in the database URL, and the network.'],
  ECONNRESET: ['closed the connection', 'Is it starting or stopping? Does it require TLS (?sslmode=require)?'],
  '28P01': ['did not accept the password', 'Check user and password in the database URL.'],
  '28000': ['did not let this user in', 'Check the user in the database URL, and pg_hba.conf.'],
  '3D000': ['does not exist', 'Create it, or check the name in the database URL.'],
  '53300': ['has no connection left', 'Use a pooler, or raise max_connections.'],
  '57P03': ['is starting or stopping', 'Try again in a moment.'],
}
