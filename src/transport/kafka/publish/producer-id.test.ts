import { expect, test } from 'vitest'
import { always, message, ProducingBroker, publisherWith, statuses, type Fault } from '../../../../test/kafka/producing-broker.ts'
import { plantMistake, type Mistake } from '../../../../test/setup/planted-mistake.ts'
import { eventually } from '../../../testing/kit/eventually.ts'
import { createFakeClock } from '../../../testing/kit/fake-clock.ts'
import type { KafkaPublisher } from './publisher.ts'

/** The first of a key is in the log, unknown to us; its repetition ends as told. Then comes the next. */
async function repeatedInVain(end: Fault, Publisher?: typeof KafkaPublisher): Promise<readonly string[]> {
  const broker = new ProducingBroker()
  const clock = createFakeClock()
  const ends: Fault[] = ['cut after', end]
  broker.faultFor = () => ends.shift() ?? 'none'
  const publisher = publisherWith(broker.client(), { clock, publishTimeoutMs: 60 }, Publisher)
  const first = publisher.publish([message('a1', 'a')], always)
  await eventually(() => clock.sleepers() === 1)
  await clock.advance(50)
  expect(statuses(await first)).not.toContain('confirmed')
  expect(statuses(await publisher.publish([message('a2', 'a')], always))).toEqual(['confirmed'])
  return broker.log.map(({ name }) => name)
}

test.each(['NOT_ENOUGH_REPLICAS', 'INVALID_RECORD'] as const)(
  'what may be there is not forgotten because its repetition was refused: the next has another producer id (%s)',
  async (end) => {
    expect(await repeatedInVain(end)).toEqual(['a1', 'a2'])
  },
)

const mistakes: readonly (readonly [name: string, end: Fault, mistake: Mistake])[] = [
  [
    'believes the last refusal alone',
    'NOT_ENOUGH_REPLICAS',
    { from: '(isRepeated || !isUnappended(name))', to: '!isUnappended(name)' },
  ],
  [
    'takes what it rejects for not there',
    'INVALID_RECORD',
    { from: 'if (isRepeated && this.#producer === producer) this.#producer = undefined', to: '' },
  ],
]

test.each(mistakes)('it is noticed when a publisher %s', async (_, end, mistake) => {
  const file = new URL('publisher.ts', import.meta.url)
  const { KafkaPublisher: Mistaken } = await plantMistake<{ readonly KafkaPublisher: typeof KafkaPublisher }>(file, mistake)
  // The second was confirmed, as a repetition of the first, and is nowhere.
  expect(await repeatedInVain(end, Mistaken)).toEqual(['a1'])
})
