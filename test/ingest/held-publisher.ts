/** A broker that answers when a test says so, and shows what it was asked. */
import type { OutgoingMessage, Publisher, PublishOutcome } from '../../src/transport/port/transport.ts'

export interface HeldPublisher extends Publisher {
  /** The calls so far, each with its messages. */
  readonly calls: readonly (readonly OutgoingMessage[])[]
  /** Answers every call that is held, and those to come, with one status for each message. */
  answer(status: PublishOutcome['status']): void
  /** Holds calls again. */
  hold(): void
}

export function heldPublisher(maxBytes = 1_000_000): HeldPublisher {
  const calls: (readonly OutgoingMessage[])[] = []
  const held = new Set<(status: PublishOutcome['status']) => void>()
  let answered: PublishOutcome['status'] | undefined
  return {
    maxBytes,
    calls,
    answer: (status) => {
      answered = status
      for (const settle of held) settle(status)
      held.clear()
    },
    hold: () => (answered = undefined),
    publish: async (messages, { signal }) => {
      calls.push(messages)
      const status =
        answered ??
        (await new Promise<PublishOutcome['status']>((settle) => {
          held.add(settle)
          signal.addEventListener('abort', () => settle('unavailable'), { once: true })
        }))
      return messages.map((_, i) => outcome(status, `${calls.length}-${i}`))
    },
  }
}

function outcome(status: PublishOutcome['status'], messageId: string): PublishOutcome {
  if (status === 'confirmed') return { status, messageId }
  return status === 'not-sent' ? { status } : { status, error: new Error('as the test wants it') }
}
