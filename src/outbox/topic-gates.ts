/**
 * Which topics are worth a try. One that is missing, or closed to this relay, costs the others nothing: its events are put
 * off, and now and then those of one key are tried.
 *
 *   open ──unroutable──▶ shut ──delay over──▶ probed ──confirmed──▶ open
 *                         ▲                     │
 *                         └─────unroutable──────┘   (the delay grows)
 */
import type { Breaker } from '../core/breaker.ts'
import type { OutgoingMessage, PublishOutcome } from '../transport/transport.ts'

export interface TopicGates {
  /** How long the topic's events are put off, and what was said of it; undefined if they may be tried. */
  shut(topic: string): { readonly waitMs: number; readonly error: Error } | undefined
  /** Whether the events of one key are enough for now. */
  isProbed(topic: string): boolean
  learn(messages: readonly OutgoingMessage[], outcomes: readonly PublishOutcome[]): void
  /** What was said of topics that have not taken anything since. */
  errors(): readonly Error[]
}

export function createTopicGates(newBreaker: () => Breaker): TopicGates {
  const gates = new Map<string, { readonly breaker: Breaker; readonly error: Error }>()
  return {
    shut: (topic) => {
      const gate = gates.get(topic)
      const waitMs = gate?.breaker.waitMs() ?? 0
      return gate === undefined || waitMs === 0 ? undefined : { waitMs, error: gate.error }
    },
    isProbed: (topic) => gates.get(topic)?.breaker.state() === 'probing',
    learn: (messages, outcomes) => {
      const failed = new Map<string, Error>()
      const open = new Set<string>()
      outcomes.forEach((outcome, index) => {
        const topic = messages[index]?.topic ?? ''
        if (outcome.status === 'confirmed') open.add(topic)
        if (outcome.status === 'unroutable') failed.set(topic, outcome.error)
      })
      for (const topic of open) gates.delete(topic)
      for (const [topic, error] of failed) {
        if (open.has(topic)) continue
        const breaker = gates.get(topic)?.breaker ?? newBreaker()
        breaker.failed()
        gates.set(topic, { breaker, error })
      }
    },
    errors: () => [...gates.values()].map(({ error }) => error),
  }
}
