import { expect, test } from 'vitest'
import { seededRandom } from '../../../core/service/random.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import { kafkaError } from '../client/errors.ts'
import { OffsetCommitter } from './offset-committer.ts'
import { PartitionWindow } from './partition-window.ts'

test.each([
  { when: 'while the assignment lasts', isOver: false, told: 1 },
  { when: 'after its end', isOver: true, told: 0 },
])('a commit that is refused $when tells $told times that the group went on without us', async ({ isOver, told }) => {
  const { promise: answer, reject: refuse } = Promise.withResolvers<void>()
  const window = new PartitionWindow(0, 0n)
  window.append([], 5n)
  const fencings: unknown[] = []
  const errors: unknown[] = []
  const committer = new OffsetCommitter({
    client: { commitOffsets: () => answer },
    member: { group: 'ledger', memberId: 'm1', generation: 1, instanceId: undefined },
    topic: 'orders',
    committed: new Map([[window, 0n]]),
    ackWaitMs: 1_000,
    clock: createFakeClock(),
    random: seededRandom(1),
    onFenced: (error) => void fencings.push(error),
    onError: (error) => void errors.push(error),
  })
  const flushing = committer.flush()
  await Promise.resolve()
  if (isOver) committer.end()
  refuse(kafkaError('ILLEGAL_GENERATION', 'commit'))
  await flushing
  expect(fencings.length).toBe(told)
  expect(errors).toEqual([])
})
