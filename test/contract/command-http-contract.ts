/**
 * The promises of a command behind HTTP. An adapter of a framework is done when this suite passes.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Command } from '../../src/command/model/command.ts'
import type { Commands } from '../../src/command/commands.ts'
import { createSignals } from '../../src/core/signals.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { depositCommand, type Deposit, type DepositResult } from '../command/bank.ts'
import { commandSetup, gate } from '../command/command-setup.ts'

/** For the route of deposits: a page of this origin may send its visitors' cookies. */
export const listedOrigin = 'https://app.example.com'

/** What an adapter is given: two commands, and who asks (the header `x-user`; nobody without it). */
export interface HttpHarness {
  readonly commands: Commands
  /** At POST /deposit: keeps its response. */
  readonly deposit: Command<Deposit, DepositResult>
  /** At POST /note: keeps none, and answers 201. */
  readonly note: Command<Deposit, DepositResult>
}

/** Starts a server with both routes, and GET /token, which answers with the consistency token that the request shows. */
export type OpenServer = (harness: HttpHarness) => Promise<{ readonly url: string; readonly close: () => Promise<unknown> }>

const lockWaits = `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`

/** Without `open`, the framework is not installed: the tests are skipped, and say so. */
export async function commandHttpContract(name: string, open: OpenServer | undefined): Promise<void> {
  const { db, bank, commandsWith, newAccount, newRequest } = await commandSetup()
  const signals = createSignals()
  const [queued, refused]: [string[], string[]] = [[], []]
  signals.on('command.queued', ({ at }) => void queued.push(at))
  signals.on('command.refused', ({ reason }) => void refused.push(reason))
  let held: ReturnType<typeof gate> | undefined
  let entered = gate()
  const before = async (): Promise<void> => {
    entered.open()
    await held?.opened
  }
  let server: Awaited<ReturnType<OpenServer>>

  const post = (
    path: string,
    body: unknown,
    headers: Record<string, string> = {},
    signal: AbortSignal | null = null,
  ): Promise<Response> =>
    fetch(`${server.url}${path}`, {
      method: 'POST',
      signal,
      headers: { 'content-type': 'application/json', 'x-user': 'ann', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    })
  const seen = async (response: Response): Promise<object> => ({
    status: response.status,
    type: response.headers.get('content-type')?.split(';')[0],
    body: response.status === 204 ? undefined : await response.json(),
    replayed: response.headers.get('idempotent-replayed'),
    retryAfter: response.headers.get('retry-after'),
  })
  const problem = 'application/problem+json'

  describe.skipIf(open === undefined)(`${name} serves commands`, () => {
    beforeAll(async () => {
      const commands = commandsWith({ markerLockMs: 50, maxQueued: 1, signals })
      const deposit = depositCommand({ store: 'response', before })
      server = await (open as OpenServer)({ commands, deposit, note: depositCommand({ name: 'Note' }) })
    })
    afterAll(() => server.close())

    test('runs a command once and replays its response, with a quoted or a bare key', async () => {
      const key = newRequest()
      const body = { account: newAccount(), amount: 5 }
      const first = await seen(await post('/deposit', body, { 'idempotency-key': `"${key}"` }))
      expect(first).toMatchObject({ status: 200, type: 'application/json', body: { balance: 5 }, replayed: null })
      const again = await seen(await post('/deposit', body, { 'idempotency-key': key }))
      expect(again).toEqual({ ...first, replayed: 'true' })
      expect(await bank.effects(key)).toBe(1)
    })

    test('answers a repeat whose response was not kept with a problem and the token to read the state by', async () => {
      const key = newRequest()
      const body = { account: newAccount(), amount: 5 }
      const first = await post('/note', body, { 'idempotency-key': key })
      expect(first.status).toBe(201)
      const again = await post('/note', body, { 'idempotency-key': key })
      expect(again.headers.get('waybill-token')).toBe(first.headers.get('waybill-token'))
      expect(await seen(again)).toMatchObject({
        status: 409,
        type: problem,
        body: { type: 'urn:waybill:problem:already-committed', code: 'ALREADY_COMMITTED', retryable: false },
      })
    })

    test('refuses a missing key, a malformed one, and one that was used for something else', async () => {
      const body = { account: newAccount(), amount: 5 }
      expect(await seen(await post('/deposit', body))).toMatchObject({
        status: 400,
        type: problem,
        body: { code: 'REQUEST_ID_MISSING' },
      })
      for (const bad of ['"open', '""', 'two words', 'a, b', 'x'.repeat(256), '"a", "b"'])
        expect(await seen(await post('/deposit', body, { 'idempotency-key': bad }))).toMatchObject({
          status: 400,
          type: problem,
          body: { code: 'INVALID_INPUT' },
        })
      const key = newRequest()
      await post('/deposit', body, { 'idempotency-key': key })
      for (const [path, other] of [
        ['/deposit', { ...body, amount: 6 }],
        ['/note', body],
      ] as const)
        expect(await seen(await post(path, other, { 'idempotency-key': key }))).toMatchObject({
          status: 422,
          type: problem,
          body: { code: 'KEY_REUSED' },
        })
      expect(await bank.balance(body.account)).toBe(5)
    })

    test('tells a repeat that the first is under way, and when to ask again', async () => {
      held = gate()
      entered = gate()
      const key = newRequest()
      const body = { account: newAccount(), amount: 5 }
      const first = post('/deposit', body, { 'idempotency-key': key })
      await entered.opened
      expect(await seen(await post('/deposit', body, { 'idempotency-key': key }))).toMatchObject({
        status: 409,
        type: problem,
        body: { code: 'IN_PROGRESS', retryable: true },
        retryAfter: '1',
      })
      held.open()
      held = undefined
      expect((await first).status).toBe(200)
    })

    test('refuses what is beyond the line of a hot account with when to ask again, and frees the place of a client that left', async () => {
      held = gate()
      onTestFinished(() => held?.open())
      entered = gate()
      const account = newAccount()
      const ask = (signal?: AbortSignal): Promise<Response> =>
        post('/deposit', { account, amount: 1 }, { 'idempotency-key': newRequest() }, signal)
      const first = ask()
      await entered.opened
      entered = gate()
      queued.length = 0
      // One more has a place, and waits for the account's row; the third waits in line.
      const second = ask()
      await eventually(async () => (await db.query(lockWaits)).rowCount === 1)
      const client = new AbortController()
      const third = ask(client.signal).catch((error: unknown) => (error as Error).name)
      await eventually(() => queued.length === 1)
      expect(await seen(await ask())).toMatchObject({
        status: 429,
        type: problem,
        body: { type: 'urn:waybill:problem:overloaded', code: 'OVERLOADED', retryable: true },
        retryAfter: '1',
      })
      refused.length = 0
      client.abort()
      expect(await third).toBe('AbortError')
      await eventually(() => refused.includes('aborted'))
      const next = ask()
      await eventually(() => queued.length === 2)
      held.open()
      held = undefined
      expect((await Promise.all([first, second, next])).map(({ status }) => status)).toEqual([200, 200, 200])
      expect(await bank.balance(account)).toBe(3)
    })

    test('keeps the keys of principals apart, and answers nobody without one', async () => {
      const key = newRequest()
      const body = { account: newAccount(), amount: 5 }
      for (const user of ['ann', 'bob'])
        expect(await seen(await post('/deposit', body, { 'idempotency-key': key, 'x-user': user }))).toMatchObject({
          status: 200,
          replayed: null,
        })
      expect(await seen(await post('/deposit', body, { 'idempotency-key': key, 'x-user': '' }))).toMatchObject({
        status: 401,
        type: problem,
      })
      expect(await bank.balance(body.account)).toBe(10)
    })

    test('takes cookies from its own pages only, and from listed origins', async () => {
      const evil = { cookie: 'session=ann', origin: 'https://evil.example' }
      const own = { cookie: 'session=ann', origin: server.url }
      const listed = { cookie: 'session=ann', origin: listedOrigin }
      const sent: readonly (readonly [number, Record<string, string>])[] = [
        [403, evil],
        [403, { ...evil, 'sec-fetch-site': 'cross-site' }],
        [403, { ...evil, 'sec-fetch-site': 'same-site' }],
        [403, { ...evil, authorization: 'Bearer x', 'sec-fetch-site': 'cross-site' }],
        [403, { ...evil, origin: 'null' }],
        [403, { cookie: 'session=ann', 'sec-fetch-site': 'cross-site' }],
        [403, { ...evil, origin: `${listedOrigin}.evil.example` }],
        [200, { origin: 'https://evil.example', authorization: 'Bearer x', 'sec-fetch-site': 'cross-site' }],
        [200, { cookie: 'session=ann' }],
        [200, own],
        [200, { ...own, 'sec-fetch-site': 'same-origin' }],
        [200, { ...own, 'sec-fetch-site': 'none' }],
        [200, listed],
        [200, { ...listed, 'sec-fetch-site': 'same-site' }],
        [200, { ...listed, 'sec-fetch-site': 'cross-site' }],
      ]
      for (const [status, headers] of sent) {
        const body = { account: newAccount(), amount: 5 }
        const answer = await post('/deposit', body, { 'idempotency-key': newRequest(), ...headers })
        expect([status, headers, answer.status]).toEqual([status, headers, status])
        expect(await bank.balance(body.account)).toBe(status === 200 ? 5 : 0)
        const { code } = (await answer.json()) as { readonly code?: string }
        expect(code).toBe(status === 403 ? 'FORBIDDEN' : undefined)
      }
    })

    test('asks who it is before it looks at the body', async () => {
      const headers = { 'idempotency-key': newRequest(), 'x-user': '', 'content-type': 'text/plain' }
      expect((await post('/deposit', 'x', headers)).status).toBe(401)
    })

    test('takes no body but JSON', async () => {
      for (const type of ['text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application/jsonx']) {
        const body = { account: newAccount(), amount: 5 }
        const answer = await post('/deposit', body, { 'idempotency-key': newRequest(), 'content-type': type })
        expect([type, answer.status]).toEqual([type, 415])
        expect(await bank.balance(body.account)).toBe(0)
      }
    })

    test('hands out a consistency token, takes it as a condition, and shows it to those who read', async () => {
      const account = newAccount()
      const first = await post('/deposit', { account, amount: 5 }, { 'idempotency-key': newRequest() })
      const token = first.headers.get('waybill-token') ?? ''
      const ask = (): Promise<Response> =>
        post('/deposit', { account, amount: 1 }, { 'idempotency-key': newRequest(), 'if-match': `"${token}"` })
      expect((await ask()).status).toBe(200)
      const stale = await ask()
      expect(stale.headers.get('waybill-token')).not.toBe(token)
      expect(await seen(stale)).toMatchObject({ status: 412, type: problem, body: { code: 'PRECONDITION_FAILED' } })
      expect(
        (
          await post(
            '/deposit',
            { account: newAccount(), amount: 1 },
            { 'idempotency-key': newRequest(), 'if-match': `"${token}"` },
          )
        ).status,
      ).toBe(400)
      const read = await fetch(`${server.url}/token`, { headers: { 'waybill-token': token } })
      expect(await read.text()).toBe(token)
    })

    test('refuses two consistency tokens instead of reading by one of them, or by none', async () => {
      const body = { account: newAccount(), amount: 5 }
      const two = { 'idempotency-key': newRequest(), 'waybill-token': 'w2.old, w2.new' }
      expect(await seen(await post('/deposit', body, two))).toMatchObject({
        status: 400,
        type: problem,
        body: { code: 'INVALID_INPUT' },
      })
      expect(await bank.balance(body.account)).toBe(0)
      const one = { ...two, 'waybill-token': 'w2.new' }
      expect((await post('/deposit', body, one)).status).toBe(200)
    })

    test('answers a rejection, a body that does not fit and one that is not JSON', async () => {
      const account = newAccount()
      expect(await seen(await post('/deposit', { account, amount: -5 }, { 'idempotency-key': newRequest() }))).toMatchObject({
        status: 422,
        type: problem,
        body: { code: 'REJECTED', reason: 'not-enough', details: { have: 0 } },
      })
      expect(await seen(await post('/deposit', { account: 7 }, { 'idempotency-key': newRequest() }))).toMatchObject({
        status: 400,
        body: { code: 'INVALID_INPUT' },
      })
      expect((await post('/deposit', '{"account":', { 'idempotency-key': newRequest() })).status).toBe(400)
    })
  })
}
