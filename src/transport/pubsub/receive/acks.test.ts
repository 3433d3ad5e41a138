import { Metadata } from '@grpc/grpc-js'
import { expect, test } from 'vitest'
import { grpcCodes, type GrpcCode } from '../../../core/errors.ts'
import { seededRandom } from '../../../core/service/random.ts'
import { encodeStatus, errorInfo } from '../../../integrations/rpc-details.ts'
import { createFakeClock, type FakeClock } from '../../../testing/kit/fake-clock.ts'
import { Settler } from './acks.ts'
import type { AckOutcome } from '../../port/transport.ts'

/** What a call fails with when the service adds an ErrorInfo to its status. */
function refusal(code: GrpcCode, reason: string, info: Readonly<Record<string, string>>): Error {
  const metadata = new Metadata()
  metadata.set('grpc-status-details-bin', encodeStatus(code, reason, [errorInfo(reason, info)]))
  return Object.assign(new Error(reason), { code: grpcCodes[code], details: reason, metadata })
}

const quota = refusal('RESOURCE_EXHAUSTED', 'RATE_LIMIT_EXCEEDED', { service: 'pubsub.googleapis.com', quota_limit: 'x' })
const denial = refusal('PERMISSION_DENIED', 'IAM_PERMISSION_DENIED', { permission: 'pubsub.subscriptions.consume' })

/** Answers each call with the next of `answers`, then with success. */
function settlerAnswered(answers: readonly Error[]) {
  const clock = createFakeClock()
  const calls: (readonly string[])[] = []
  const settler = new Settler({
    clock,
    random: seededRandom(1),
    call: (_, request) => {
      const error = answers[calls.length]
      calls.push((request as { readonly ackIds: readonly string[] }).ackIds)
      return error === undefined ? Promise.resolve() : Promise.reject(error)
    },
  })
  return { settler, clock, calls }
}

async function outcomeOf(settling: Promise<AckOutcome>, clock: FakeClock): Promise<AckOutcome> {
  let outcome: AckOutcome | undefined
  void settling.then((settled) => (outcome = settled))
  while (outcome === undefined) await clock.advance(1_000)
  return outcome
}

test('what a missing quota refused is repeated, and not taken as done', async () => {
  for (const settle of [(of: Settler) => of.ack('1'), (of: Settler) => of.modify('1', 60), (of: Settler) => of.modify('1', 0)]) {
    const { settler, clock, calls } = settlerAnswered([quota, quota])
    expect(await outcomeOf(settle(settler), clock)).toBe('confirmed')
    expect(calls).toEqual([['1'], ['1'], ['1']])
    const starved = settlerAnswered(Array.from({ length: 8 }, () => quota))
    expect(await outcomeOf(settle(starved.settler), starved.clock)).toBe('unconfirmed')
  }
})

test('what a missing permission refused is unconfirmed', async () => {
  const { settler, clock, calls } = settlerAnswered([denial])
  expect(await outcomeOf(settler.ack('1'), clock)).toBe('unconfirmed')
  expect(calls.length).toBe(1)
})

test('where the service names the ids that failed, each has its own outcome, and the others succeeded', async () => {
  const named = {
    '1': 'PERMANENT_FAILURE_INVALID_ACK_ID',
    '2': 'TRANSIENT_FAILURE_SERVICE_UNAVAILABLE',
    '4': 'A_FAILURE_OF_ANOTHER_KIND',
  }
  const { settler, clock, calls } = settlerAnswered([refusal('FAILED_PRECONDITION', 'EXACTLY_ONCE_ACKID_FAILURE', named)])
  const settling = ['1', '2', '3', '4'].map((ackId) => outcomeOf(settler.ack(ackId), clock))
  expect(await Promise.all(settling)).toEqual(['lost', 'confirmed', 'confirmed', 'lost'])
  expect(calls).toEqual([['1', '2', '3', '4'], ['2']])
})
