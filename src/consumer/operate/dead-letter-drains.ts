/**
 * What brings the broker's dead letters of a consumer into its table while it runs, topic by topic.
 *
 * A transport keeps a subscription open by itself, but one that it is refused at the start it leaves alone. Such a subscription may be
 * there later: a grant takes minutes until it is known everywhere, and some provision after they deploy. So it is asked for again for as
 * long as the process lives, and the consumer goes on meanwhile.
 */
import { errorMessage, isWaybillError } from '../../core/errors.ts'
import type { Service } from '../../core/service/lifetime.ts'
import { loop } from '../../core/service/loop.ts'
import type { Transport } from '../../transport/port/transport.ts'
import { drainBrokerDeadLetters } from './broker-dead-letters.ts'
import type { ConsumerSettings } from '../model/consumer-options.ts'
import type { Consumer } from '../consumer.ts'

/** After a refusal it is asked for again every minute. */
const backoff = { firstMs: 60_000, maxMs: 60_000, jitter: 'none' } as const

/**
 * The services to run beside a consumer, one for each topic of its dead letters at the broker; none where the broker has no such topics.
 * For a consumer to which nothing more is added.
 */
export function deadLetterDrains(draining: Pick<Consumer, 'settings' | 'routes'>): readonly Service[] {
  const { settings } = draining
  // One that stops at what fails should have no dead letters, but the broker may have taken some before it was told.
  const transport: Pick<Transport, 'receive' | 'deadLetterTopic'> = settings.transport
  return draining.routes().topics.flatMap((publishedTo) => {
    const topic = transport.deadLetterTopic?.(publishedTo, settings.name)
    return topic === undefined ? [] : drainOf(settings, topic, publishedTo)
  })
}

function drainOf(settings: ConsumerSettings, topic: string, publishedTo: string): Service {
  const { db, transport, name: consumer, schema, onDead, verify, verifier, signals, clock, random } = settings
  const common = { db, transport, consumer, schema, onDead, verify, verifier, signals, clock }
  const drain = drainBrokerDeadLetters({ ...common, topics: [topic], publishedTo })
  const isNews = createNews()
  const onError = (error: unknown): void => {
    // One that stops is provisioned without.
    const isExpected = settings.onPoison === 'stop' && isWaybillError(error, 'NOT_FOUND')
    if (isNews(error) && !isExpected) signals.emit('consumer.disturbed', { consumer, topic, error })
  }
  return {
    name: drain.name,
    run: async (life) => {
      const untilStopped = async (): Promise<'idle'> => {
        await drain.run(life)
        return 'idle'
      }
      await loop(untilStopped, life, { idleMs: () => 0, backoff, onError, clock, random })
    },
  }
}

/** Tells whether an error is another than the one before it: what stays as it is was reported already. */
function createNews(): (error: unknown) => boolean {
  let known: string | undefined
  return (error) => {
    const before = known
    known = isWaybillError(error) ? error.code : errorMessage(error)
    return known !== before
  }
}
