/**
 * Writes signals as structured log entries: what a person should read, at the level it deserves, with the ids to go on by.
 *
 * Entries carry ids, names and numbers, never payloads. What an error said may quote data or an address with its password, so
 * by default only its class or code is written; the text is where an operator looks next (`waybill dlq show`,
 * `waybill outbox list --state parked`). Anomalies are loud, but once: when one repeats, `burst` of its kind are written in a window, the
 * rest are counted, and the next entry says how many there were.
 */
import { systemClock, type Clock } from '../core/service/clock.ts'
import { resolve, oneOf, wholeBetween } from '../core/options.ts'
import type { SignalBus, SignalName, Signals } from '../core/signals.ts'
import { logRules, type LogLevel, type LogRule } from './log-rules.ts'
import { errorMessage } from '../core/errors.ts'
import { redactSecrets } from '../core/redact.ts'

export type LogFields = Readonly<Record<string, string | number | boolean>>

export interface LogEntry {
  readonly level: LogLevel
  /** The signal's name. */
  readonly signal: SignalName
  readonly message: string
  readonly fields: LogFields
}

export interface LogSignalsOptions {
  readonly signals: Pick<SignalBus, 'onAny'>
  /** Takes an entry: `({ level, message, signal, fields }) => pino[level]({ signal, ...fields }, message)`. */
  readonly log: (entry: LogEntry) => void
  /** Entries below it are not made. @default 'info' */
  readonly level?: LogLevel
  /** Write what errors say, cut and without passwords in addresses, or their class and code alone. @default 'code' */
  readonly errors?: 'code' | 'text'
  /** Entries of one kind in a window. @default 10 */
  readonly burst?: number
  /** @default 60_000 */
  readonly windowMs?: number
  readonly clock?: Clock
}

const levels: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 }

interface Window {
  readonly startedAtMs: number
  written: number
  dropped: number
}

/** Writes everything that is signalled from now on; returns the function that ends it. */
export function logSignals(options: LogSignalsOptions): () => void {
  const settings = resolve<Required<LogSignalsOptions>>(
    'logs',
    {
      signals: options.signals,
      log: options.log,
      level: 'info',
      errors: 'code',
      burst: 10,
      windowMs: 60_000,
      clock: systemClock,
    },
    options,
    {
      level: oneOf('debug', 'info', 'warn', 'error'),
      errors: oneOf('code', 'text'),
      burst: wholeBetween(1, 1_000_000),
      windowMs: wholeBetween(1, 86_400_000),
    },
  )
  const admit = createLimiter(settings)
  return settings.signals.onAny((event, name) => {
    const rule = logRules[name] as LogRule<SignalName>
    const level = typeof rule.level === 'function' ? rule.level(event) : rule.level
    if (level === undefined || levels[level] < levels[settings.level]) return
    const fields = fieldsOf(event, settings.errors)
    const repeated = admit(`${name} ${rule.kind?.(event) ?? ''}`)
    if (repeated === undefined) return
    const told = repeated === 0 ? fields : { ...fields, repeated }
    settings.log({ level, signal: name, message: rule.message, fields: told })
  })
}

/** How many of this kind were left out since the last entry; `undefined` if this one is left out too. */
function createLimiter({ burst, windowMs, clock }: Required<LogSignalsOptions>): (kind: string) => number | undefined {
  const windows = new Map<string, Window>()
  return (kind) => {
    const now = clock.monotonicMs()
    const open = windows.get(kind)
    if (open === undefined || now - open.startedAtMs >= windowMs) {
      windows.delete(kind)
      windows.set(kind, { startedAtMs: now, written: 1, dropped: 0 })
      forgetOldest(windows)
      return open?.dropped ?? 0
    }
    if (open.written >= burst) return void (open.dropped += 1)
    open.written += 1
    return 0
  }
}

const mostKinds = 1_000

function forgetOldest(windows: Map<string, Window>): void {
  const [oldest] = windows.keys()
  if (windows.size > mostKinds && oldest !== undefined) windows.delete(oldest)
}

/** The fields of a signal under their log names. Lists become their length. */
function fieldsOf(event: Signals[SignalName], errors: 'code' | 'text'): LogFields {
  const fields: Record<string, string | number | boolean> = {}
  for (const [name, value] of Object.entries<unknown>(event)) {
    const key = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
    if (name === 'error') Object.assign(fields, describeError(value, errors))
    else if (Array.isArray(value)) fields[key] = value.length
    else if (typeof value === 'string' || typeof value === 'boolean') fields[key] = value
    else if (typeof value === 'number') fields[key] = Math.round(value * 1_000) / 1_000
  }
  return fields
}

/**
 * An error as fields of a log entry, without what it must not tell.
 *
 * Errors quote statements, values and addresses. By default only the class and the code are kept; as text, secrets are
 * masked and the rest is cut.
 */
interface DescribedError {
  readonly error_type?: string
  readonly error_code?: string
  readonly error?: string
}

const longestText = 500

/** Its class and code; with `text` also what it said. */
function describeError(error: unknown, as: 'code' | 'text'): DescribedError {
  if (error === undefined) return {}
  const isError = error instanceof Error
  const { code } = (isError ? error : {}) as { readonly code?: unknown }
  return {
    ...(isError ? { error_type: error.name } : {}),
    ...(typeof code === 'string' && /^[A-Za-z0-9_.-]{1,64}$/.test(code) ? { error_code: code } : {}),
    ...(as === 'text' ? { error: redactSecrets(errorMessage(error)).slice(0, longestText) } : {}),
  }
}
