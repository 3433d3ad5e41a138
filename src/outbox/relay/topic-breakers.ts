/**
 * Which topics are worth a try. One that is missing, or closed to this relay, costs the others nothing: its events are put
 * off for minutes, and only those of one key are tried now and then.
 *
 *   unknown ──confirmed──▶ open ──unroutable──▶ shut ──delay over──▶ probed ──confirmed──▶ open
 *                                                ▲                     │
 *                                                └─────unroutable──────┘   (the delay grows)
 *
 * Whenever one opens, whatever was put off for it, by this relay or by another, is woken.
 */
import type { Breaker } from '../../core/service/breaker.ts'
import type { OutgoingMessage, PublishOutcome } from '../../transport/port/transport.ts'

export interface ShutTopic {
  /** How long until it is tried again. */
  readonly probeMs: number
  /** How long what is not tried is put off, if nobody wakes it before. */
  readonly restMs: number
  readonly error: Error
}

export interface TopicGates {
  shut(topic: string): ShutTopic | undefined
  /** Whether the events of one key are enough for now. */
  isProbed(topic: string): boolean
  learn(messages: readonly OutgoingMessage[], outcomes: readonly PublishOutcome[]): void
  /** Wakes what waits for topics that have opened, for all of them at once. If that fails, it is done the next time. */
  wakeOpened(wake: (topics: readonly string[]) => Promise<void>): Promise<void>
  /** What was said of topics that have not taken anything since. */
  errors(): readonly Error[]
}

export interface TopicGateParts {
  readonly newBreaker: () => Breaker
  readonly restMs: () => number
}

export function createTopicGates({ newBreaker, restMs }: TopicGateParts): TopicGates {
  const open = new Set<string>()
  const opened = new Set<string>()
  const gates = new Map<string, { readonly breaker: Breaker; readonly error: Error }>()
  return {
    shut: (topic) => {
      const gate = gates.get(topic)
      const probeMs = gate?.breaker.waitMs() ?? 0
      return gate === undefined || probeMs === 0 ? undefined : { probeMs, restMs: Math.max(probeMs, restMs()), error: gate.error }
    },
    isProbed: (topic) => gates.get(topic)?.breaker.state() === 'probing',
    learn: (messages, outcomes) => {
      const failed = new Map<string, Error>()
      const taken = new Set<string>()
      outcomes.forEach((outcome, index) => {
        const topic = messages[index]?.topic ?? ''
        if (outcome.status === 'confirmed') taken.add(topic)
        if (outcome.status === 'unroutable') failed.set(topic, outcome.error)
      })
      for (const topic of taken) {
        gates.delete(topic)
        if (!open.has(topic)) opened.add(topic)
        open.add(topic)
      }
      for (const [topic, error] of failed) {
        if (taken.has(topic)) continue
        const breaker = gates.get(topic)?.breaker ?? newBreaker()
        breaker.failed()
        gates.set(topic, { breaker, error })
        open.delete(topic)
      }
    },
    wakeOpened: async (wake) => {
      if (opened.size === 0) return
      const topics = [...opened]
      await wake(topics)
      for (const topic of topics) opened.delete(topic)
    },
    errors: () => [...gates.values()].map(({ error }) => error),
  }
}
