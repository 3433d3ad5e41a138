/** Requests to commands, on Postgres, and to an ingest: whatever a client sends, the answer is no 5xx and nothing is thrown. */
import fc from 'fast-check'
import { z } from 'zod'
import { command } from '../../src/command/model/command.ts'
import { createCommands } from '../../src/command/commands.ts'
import type { Stream } from '../../src/core/event/stream.ts'
import { state } from '../../src/core/event/event.ts'
import { stream } from '../../src/core/event/stream.ts'
import { createIngest } from '../../src/ingest/ingest.ts'
import { fetchCommand, fetchIngest } from '../../src/integrations/fetch.ts'
import { createOutbox } from '../../src/outbox/outbox.ts'
import type { Database } from '../../src/postgres/query/database.ts'
import type { Corpus, OpenCorpus } from './fuzz.ts'
import { bytes, headerValue, mutated, mutatedText } from './inputs.ts'

export interface FuzzWorld {
  /** A migrated database. */
  readonly db: Database
}

type Handler = (request: Request) => Promise<Response>

const token = `w1.${Buffer.from('["account","a","1"]').toString('base64url')}`
const headerNames = fc.constantFrom(
  'content-type',
  'content-encoding',
  'content-length',
  'transfer-encoding',
  'idempotency-key',
  'if-match',
  'waybill-token',
  'traceparent',
  'tracestate',
  'user-agent',
  'origin',
  'sec-fetch-site',
  'cookie',
  'authorization',
  'x-user',
  'host',
  'x-forwarded-for',
)
const headerPair = fc.tuple(
  headerNames,
  fc.oneof(
    headerValue,
    mutatedText(
      fc.constantFrom(
        'application/json',
        `"${token}"`,
        token,
        '"a key"',
        'gzip',
        '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      ),
    ),
  ),
)
const validBody = fc
  .record({ account: fc.string(), amount: fc.oneof(fc.integer(), fc.double()), note: fc.jsonValue() })
  .map((each) => Buffer.from(JSON.stringify(each)))
const body = fc.oneof(bytes, mutated(validBody), validBody)

const request = fc.record({
  headers: fc.array(headerPair, { maxLength: 5 }),
  isJson: fc.boolean(),
  key: fc.option(fc.constantFrom('"1"', '2', '"\\""'), { nil: undefined }),
  body,
})

function toRequest(
  url: string,
  {
    headers,
    isJson,
    key,
    body: content,
  }: { headers: [string, string][]; isJson: boolean; key: string | undefined; body: Uint8Array },
  method = 'POST',
): Request | undefined {
  const all = new Headers()
  if (isJson) all.set('content-type', 'application/json')
  if (key !== undefined) all.set('idempotency-key', key)
  try {
    for (const [name, value] of headers) all.append(name, value)
  } catch {
    // No server would let it pass.
    return undefined
  }
  return new Request(url, { method, headers: all, ...(method === 'GET' ? {} : { body: Buffer.from(content) }) })
}

async function assertAnswered(handler: Handler, asked: Request | undefined): Promise<void> {
  if (asked === undefined) return
  const response = await handler(asked)
  const answer = await response.text()
  if (response.status >= 500) throw new Error(`Answered with ${response.status}: ${answer}`)
}

function commandHandlers({ db }: FuzzWorld): readonly Handler[] {
  const commands = createCommands({ db, outbox: createOutbox(), requestId: 'optional' })
  const principal = (asked: Request): string | undefined => asked.headers.get('x-user') ?? 'ann'
  const echo = command('Echo', { input: z.unknown(), store: 'response', execute: async (_tx, input: unknown) => input ?? null })
  const typed = command('Typed', {
    input: z.object({ account: z.string().min(1), amount: z.number(), note: z.unknown() }),
    aggregate: ({ account }) => ({ type: 'account', id: account }),
    store: 'response',
    execute: async (_tx, { amount }) => ({ amount }),
  })
  return [fetchCommand(commands, echo, { principal }), fetchCommand(commands, typed, { principal })]
}

const commandCorpus: Corpus<FuzzWorld> = {
  name: 'http-commands',
  open: (world): OpenCorpus => {
    const handlers = commandHandlers(world)
    const property = fc.asyncProperty(request, fc.nat({ max: handlers.length - 1 }), async (given, index) => {
      await assertAnswered(handlers[index] as Handler, toRequest('http://localhost/command', given))
    })
    return { runs: 150, property }
  },
}

const readings: Stream<{ ReadingTaken: ReturnType<typeof readingTaken> }> = stream('reading', {
  topic: 'reading.events',
  events: { ReadingTaken: readingTaken() },
})

function readingTaken() {
  return state(z.object({ account: z.string().min(1), amount: z.number(), note: z.unknown() }))
}

const path = fc.oneof(
  fc.constantFrom('', '/batch', '/a', '/a/b/c', '/%00', '/%ff', '/%2e%2e', '//'),
  fc.webPath().map((each) => `/${each}`),
)

const ingestCorpus: Corpus<FuzzWorld> = {
  name: 'http-ingest',
  open: (): OpenCorpus => {
    const ingest = createIngest({
      event: readings.ReadingTaken,
      key: ({ account }) => [account],
      to: {
        maxBytes: 1_000_000,
        publish: async (messages) => messages.map((_, i) => ({ status: 'confirmed', messageId: String(i) })),
      },
    })
    const handler = fetchIngest(ingest, { path: '/readings', principal: () => 'ann', scope: 'principal' })
    const batch = fc.array(validBody, { maxLength: 5 }).map((facts) => Buffer.from(`[${facts.map(String).join()}]`))
    const given = request.chain((each) =>
      fc.oneof(fc.constant(each.body), batch, mutated(batch)).map((content) => ({ ...each, body: content })),
    )
    const property = fc.asyncProperty(given, path, fc.constantFrom('POST', 'GET', 'PUT'), async (each, below, method) => {
      await assertAnswered(handler, toRequest(`http://localhost/readings${below}`, each, method))
    })
    return { runs: 200, property }
  },
}

export const httpCorpora: readonly Corpus<FuzzWorld>[] = [commandCorpus, ingestCorpus]
