/**
 * A client of an ingest: sends a fact until the service has said that the broker has it.
 *
 * The event id follows from the fact's business key, so sending the same fact again is always safe: after a lost answer, a
 * time-out, or a crash of this process. Waits are fully jittered and not shorter than Retry-After; attempts are bounded, and a
 * signal ends them. Only an answer of the ingest itself, with an event id, counts as success.
 */
import { backoffMs, resolveBackoff, type BackoffOptions } from '../core/service/backoff.ts'
import type { BusinessKey } from '../core/event/id.ts'
import { systemClock, type Clock } from '../core/service/clock.ts'
import { defaults } from '../core/defaults.ts'
import { errorMessage, WaybillError } from '../core/errors.ts'
import { refuseUnknown, resolve, wholeBetween } from '../core/options.ts'
import { systemRandom, type Random } from '../core/service/random.ts'
import { exchange, type Exchange } from './ingest-exchange.ts'
import { refused, type Accepted, type FactOutcome, type Refused } from './fact-outcome.ts'

export interface IngestClientOptions {
  /** Where the ingest is mounted: `https://api.example.com/readings`. */
  readonly url: string
  /** @default the global fetch */
  readonly fetch?: typeof fetch
  /** Headers for every request, such as an authorization; asked for anew with each attempt. */
  readonly headers?: () => Readonly<Record<string, string>> | Promise<Readonly<Record<string, string>>>
  /** Facts in one request of `sendMany`, at most. @default 500 */
  readonly batchSize?: number
  /** How often a fact is sent before it is given up; a list that was too large and is halved begins anew. @default 20 */
  readonly maxAttempts?: number
  /** How long one attempt may take. @default 15_000 */
  readonly attemptTimeoutMs?: number
  /** The wait after the nth attempt: `firstMs`, `maxMs`, `factor` and `jitter`; those left out are as by default. @default 100 ms × 2 to 10 s, full jitter */
  readonly backoff?: Partial<BackoffOptions>
  readonly clock?: Clock
  readonly random?: Random
}

export interface SendOptions {
  /** Ends the attempts. */
  readonly signal?: AbortSignal | undefined
}

export interface IngestClient {
  /** Resolves once the fact is accepted; rejects with why it never will be, UNAVAILABLE when attempts ran out, or ABORTED. */
  send(data: unknown, options?: SendOptions): Promise<Accepted>
  /** The same for many: those that were not accepted are sent again, alone. One outcome each, in the order given. */
  sendMany(list: readonly unknown[], options?: SendOptions): Promise<readonly FactOutcome[]>
  /** Whether the fact with this business key has been processed. Rejects with FACT_CONFLICT if another one came under its key. */
  processed(key: BusinessKey, options?: SendOptions): Promise<boolean>
}

interface Settings extends Required<Omit<IngestClientOptions, 'backoff'>> {
  readonly backoff: BackoffOptions
}

export function createIngestClient(options: IngestClientOptions): IngestClient {
  const settings = resolveClientOptions(options)
  const sendMany = async (list: readonly unknown[], given: SendOptions = {}): Promise<readonly FactOutcome[]> => {
    const signal = signalOf('sendMany', given)
    const outcomes: FactOutcome[] = []
    for (let from = 0; from < list.length; from += settings.batchSize)
      outcomes.push(...(await sendSayable(settings, list.slice(from, from + settings.batchSize), { signal })))
    return outcomes
  }
  return {
    sendMany,
    send: async (data, given) => {
      const signal = signalOf('send', given)
      const text = textOf(data)
      const post = async (fact: string): Promise<FactOutcome> => {
        const { status, body, retryAfterMs } = await exchange(settings, { method: 'POST', path: '', body: fact, signal })
        return outcomeOf({ status, result: body, retryAfterMs })
      }
      const outcome = typeof text === 'string' ? await insist(settings, signal, () => post(text)) : text
      if (outcome.status === 'accepted') return outcome
      throw new WaybillError(outcome.code, outcome.message, { retryable: outcome.retryable })
    },
    processed: async (key, given) => {
      const signal = signalOf('processed', given)
      const path = pathOf(key)
      let processed = false
      const outcome = await insist(settings, signal, async () => {
        const { status, body, retryAfterMs } = await exchange(settings, { method: 'GET', path, body: undefined, signal })
        const { processed: isProcessed, conflict } = (body ?? {}) as { readonly processed?: unknown; readonly conflict?: unknown }
        processed = isProcessed === true
        if (conflict === true) return refused('FACT_CONFLICT', 'Another fact came under this business key; the first one stays.')
        return outcomeOf({ status: status === 200 ? 202 : status, result: body, retryAfterMs })
      })
      if (outcome.status === 'accepted') return processed
      throw new WaybillError(outcome.code, outcome.message, { retryable: outcome.retryable })
    },
  }
}

function signalOf(call: string, options: SendOptions = {}): AbortSignal | undefined {
  refuseUnknown(`ingestClient.${call}`, options, ['signal'])
  return options.signal
}

/** A segment for each part. Addresses have no way to say a part that is empty or only dots: it would ask about another key. */
function pathOf(key: BusinessKey): string {
  const parts = (Array.isArray(key) ? (key as readonly unknown[]) : [key]).map(String)
  const unsayable = parts.find((part) => part === '' || part === '.' || part === '..')
  if (unsayable === undefined) return `/${parts.map(encodeURIComponent).join('/')}`
  throw new WaybillError('INVALID_INPUT', `A key with the part "${unsayable}" cannot be asked about: no address can hold it.`)
}

/** Attempts until the outcome is final, or attempts or the signal end it. */
async function insist<Outcome extends FactOutcome>(
  settings: Settings,
  signal: AbortSignal | undefined,
  attempt: () => Promise<Outcome>,
): Promise<Outcome | Refused> {
  for (let attempts = 1; ; attempts += 1) {
    if (signal?.aborted === true)
      return refused('ABORTED', 'Sending was given up by its signal. The fact may have been accepted.')
    const outcome: Outcome | Refused = await attempt().catch((error: unknown) => refused('UNAVAILABLE', errorMessage(error)))
    if (outcome.status === 'accepted' || !outcome.retryable || attempts >= settings.maxAttempts) return outcome
    await pause(settings, { attempts, retryAfterMs: outcome.retryAfterMs, signal })
  }
}

/** Written once, so that every attempt says the same. What JSON cannot say is refused here: no attempt would. */
function textOf(fact: unknown): string | Refused {
  try {
    // Of undefined and of functions it makes nothing at all.
    const text: string | undefined = JSON.stringify(fact)
    return text ?? refused('INVALID_INPUT', `JSON cannot say this fact: it is ${typeof fact}.`)
  } catch (error) {
    return refused('INVALID_INPUT', `JSON cannot say this fact: ${errorMessage(error)}`)
  }
}

/** One fact that cannot be said does not take its neighbours with it. */
async function sendSayable(settings: Settings, list: readonly unknown[], options: SendOptions): Promise<readonly FactOutcome[]> {
  const written = list.map(textOf)
  const texts = written.filter((each) => typeof each === 'string')
  const sent = (await sendBatch(settings, texts, options)).values()
  return written.map((each) => (typeof each === 'string' ? (sent.next().value as FactOutcome) : each))
}

/** A list that is too large as a whole is halved, until a fact is too large by itself. */
async function sendBatch(settings: Settings, list: readonly string[], { signal }: SendOptions): Promise<readonly FactOutcome[]> {
  const outcomes: FactOutcome[] = list.map(() => refused('UNAVAILABLE', 'It was not sent.'))
  let open = list.map((_, index) => index)
  for (let attempts = 1; open.length > 0; attempts += 1) {
    if (signal?.aborted === true) {
      for (const index of open)
        outcomes[index] = refused('ABORTED', 'Sending was given up by its signal. It may have been accepted.')
      break
    }
    const body = `[${open.map((index) => list[index]).join(',')}]`
    const answer = await exchange(settings, { method: 'POST', path: '/batch', body, signal }).catch(unanswered)
    if (isListTooLarge(answer, open.length)) {
      const middle = Math.ceil(open.length / 2)
      for (const half of [open.slice(0, middle), open.slice(middle)]) {
        const part = half.map((index) => list[index] as string)
        const ended = await sendBatch(settings, part, { signal })
        half.forEach((index, i) => (outcomes[index] = ended[i] as FactOutcome))
      }
      break
    }
    const results = resultsOf(answer, open.length)
    open.forEach((index, i) => (outcomes[index] = results[i] as FactOutcome))
    open = open.filter((index) => isOpen(outcomes[index]))
    if (attempts >= settings.maxAttempts) break
    if (open.length > 0) await pause(settings, { attempts, retryAfterMs: answer.retryAfterMs, signal })
  }
  return outcomes
}

/** 413 without results speaks of the list, or of its bytes, and says nothing about any one fact. */
function isListTooLarge({ status, body }: Exchange, count: number): boolean {
  return status === 413 && count > 1 && !hasResults(body, count)
}

function hasResults(body: unknown, count: number): body is { readonly results: readonly { readonly status?: unknown }[] } {
  const { results } = (body ?? {}) as { readonly results?: unknown }
  return Array.isArray(results) && results.length === count
}

function isOpen(outcome: FactOutcome | undefined): boolean {
  return outcome?.status === 'refused' && outcome.retryable
}

/** Retry-After is when all come back; the jitter on top of it spreads them. */
async function pause(
  { clock, backoff, random }: Settings,
  {
    attempts,
    retryAfterMs = 0,
    signal,
  }: { readonly attempts: number; readonly retryAfterMs: number | undefined; readonly signal: AbortSignal | undefined },
): Promise<void> {
  await clock.sleep(retryAfterMs + backoffMs(backoff, attempts, random), signal)
}

/** The results of a batch; an answer without one for each fact is about all of them. */
function resultsOf({ status, body, retryAfterMs }: Exchange, count: number): readonly FactOutcome[] {
  if (hasResults(body, count))
    return body.results.map((result) => outcomeOf({ status: Number(result?.status), result, retryAfterMs }))
  const outcome = outcomeOf({ status: status === 202 || status === 207 ? 502 : status, result: body, retryAfterMs })
  return Array.from({ length: count }, () => outcome)
}

function outcomeOf({
  status,
  result,
  retryAfterMs,
}: {
  readonly status: number
  readonly result: unknown
  readonly retryAfterMs: number | undefined
}): FactOutcome {
  const { eventId, detail, title } = (result ?? {}) as Readonly<Record<string, unknown>>
  if (status === 202 && typeof eventId === 'string') return { status: 'accepted', eventId }
  const message = [detail, title].find((text) => typeof text === 'string') ?? `The service answered with ${status}.`
  const code = codes[status] ?? (status >= 400 && status < 500 ? 'INVALID_INPUT' : 'UNAVAILABLE')
  return refused(code, message, retryAfterMs)
}

const codes: Readonly<Record<number, Refused['code']>> = {
  408: 'UNAVAILABLE',
  409: 'FACT_CONFLICT',
  413: 'TOO_LARGE',
  422: 'REJECTED',
  425: 'UNAVAILABLE',
  429: 'OVERLOADED',
}

function unanswered(error: unknown): Exchange {
  return { status: 503, body: { detail: errorMessage(error) }, retryAfterMs: undefined }
}

function resolveClientOptions(given: IngestClientOptions): Settings {
  const settings = resolve<Settings>(
    'ingestClient',
    {
      url: given.url,
      fetch: globalThis.fetch,
      headers: () => ({}),
      ...defaults.ingestClient,
      clock: systemClock,
      random: systemRandom,
    },
    { ...given, backoff: resolveBackoff('ingestClient.backoff', defaults.ingestClient.backoff, given.backoff) },
    {
      batchSize: wholeBetween(1, 100_000),
      maxAttempts: wholeBetween(1, 1_000_000),
      attemptTimeoutMs: wholeBetween(1, 3_600_000),
    },
  )
  if (!URL.canParse(settings.url))
    throw new WaybillError(
      'INVALID_OPTION',
      'ingestClient.url: must be the whole address of an ingest, such as https://api.example.com/readings.',
    )
  return { ...settings, url: settings.url.replace(/\/+$/, '') }
}
