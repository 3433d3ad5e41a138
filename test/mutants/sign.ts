/** Mistakes in what is signed and believed, and in what notices versions that jump and ids that are used again. */
import type { SourceMutant } from './source-mutant.ts'

const signing = 'src/core/event/signing.test.ts'
const verified = 'src/consumer/receive/verified.pg.test.ts'
const jumps = 'src/consumer/batch/max-version-jump.pg.test.ts'
const reused = 'src/consumer/batch/id-reused.pg.test.ts'
const flips = 'no attribute, header or topic can be changed, added to or left out, and no bit of the body'

export const signMutants: readonly SourceMutant[] = [
  {
    mutant: 'signs a message for every topic',
    file: 'src/core/event/signing.ts',
    from: '${part(keyId)}${part(topic)}`',
    to: '${part(keyId)}`',
    caughtBy: { file: signing, test: flips },
  },
  {
    mutant: 'signs the attributes alone',
    file: 'src/core/event/signing.ts',
    from: 'into.set(body, bodyStart)',
    to: 'void body',
    caughtBy: { file: signing, test: flips },
  },
  {
    mutant: 'signs texts one after the other, without their lengths',
    file: 'src/core/event/signing.ts',
    from: '`,${text.length}:${text}`',
    to: '`,${text}`',
    caughtBy: { file: signing, test: 'texts that run into each other are signed as different ones' },
  },
  {
    mutant: 'takes any secret for a good one',
    file: 'src/core/event/signing.ts',
    from: 'assertStrongSecret(what, secret)\n',
    to: '',
    caughtBy: { file: signing, test: 'are refused where they cannot be right: signer.secret: the secret has less than 128 bits' },
  },
  {
    mutant: 'lets a key sign for every topic',
    file: 'src/core/event/signing.ts',
    from: ' || key.topics?.has(message.topic) === false',
    to: '',
    caughtBy: { file: signing, test: 'sign for their topics alone' },
  },
  {
    mutant: 'applies what it has refused',
    file: 'src/consumer/receive/verified.ts',
    from: 'void delivery.ack()',
    to: 'options.onDelivery(delivery)',
    caughtBy: {
      file: verified,
      test: 'what is not signed, forged, or of an unknown key takes no effect, holds nothing and moves nothing',
    },
  },
  {
    mutant: 'accepts a wrong signature where none would do',
    file: 'src/consumer/receive/verified.ts',
    from: "verdict.distrust === 'unsigned' && verify === 'accept'",
    to: "verify === 'accept'",
    caughtBy: { file: verified, test: 'accept lets unsigned messages in and counts them; what is signed must be right' },
  },
  {
    mutant: 'shows handlers what nobody signed',
    file: 'src/consumer/receive/verified.ts',
    from: 'verdict.attributes === attributes ? delivery : withAttributes(delivery, verdict.attributes)',
    to: 'delivery',
    caughtBy: { file: verified, test: 'a handler sees the attributes that were signed, and none that was added' },
  },
  {
    mutant: 'verifies a dead letter for the topic of dead letters',
    file: 'src/consumer/receive/verified.ts',
    from: 'topic: publishedTo ?? topic',
    to: 'topic',
    caughtBy: {
      file: verified,
      test: 'what the broker gives up on becomes a dead letter only if it is signed for the topic that it came from',
    },
  },
  {
    mutant: 'rebuilds from what nobody signed',
    file: 'src/ops/rebuild/run.ts',
    from: "parseFrom(from) === 'outbox' ? feed",
    to: 'true ? feed',
    caughtBy: { file: verified, test: 'a rebuild believes the owner’s outbox, and of the broker what is signed (earliest)' },
  },
  {
    mutant: 'publishes without the signature that the relay was given',
    file: 'src/outbox/relay/engine.ts',
    from: 'signedPublisher(settings.transport, settings.signer)',
    to: 'signedPublisher(settings.transport, undefined)',
    caughtBy: { file: verified, test: 'events of a relay are believed (memory)' },
  },
  {
    mutant: 'measures an aggregate that it meets for the first time',
    file: 'src/consumer/batch/max-version-jump.ts',
    from: 'const last = reached.get(key)\n',
    to: 'const last = reached.get(key) ?? 0n\n',
    caughtBy: {
      file: 'src/consumer/batch/max-version-jump.test.ts',
      test: 'a version is believed up to the limit ahead of the last one believed, in the database or in the batch',
    },
  },
  {
    mutant: 'does not hear where rows jump from',
    file: 'src/consumer/tables/claim.sql.ts',
    from: 'm.overlapped is not null or m.jumped_from is not null`\n}\n\n/** The same without an inbox',
    to: 'm.overlapped is not null`\n}\n\n/** The same without an inbox',
    caughtBy: { file: jumps, test: 'a jump of more than a million is told of by default, and takes its turn (rows)' },
  },
  {
    mutant: 'applies a jump that is to be put aside',
    file: 'src/consumer/batch/max-version-jump.ts',
    from: "jumps.size > 0 && onVersionJump === 'dead-letter'",
    to: 'jumps.size < 0',
    caughtBy: {
      file: jumps,
      test: "a forged version is put aside, and its aggregate goes on as if it had not come ({ mode: 'direct', onDead: 'hold' })",
    },
  },
  {
    mutant: 'compares an id that comes again by what it says of itself alone',
    file: 'src/consumer/tables/item-arrays.ts',
    from: 'message.body)',
    to: 'new Uint8Array())',
    caughtBy: {
      file: reused,
      test: 'an event under the id of another one is told of, and the first one stays; a repeat is none (handlers)',
    },
  },
  {
    mutant: 'takes the marker of a skipped event for another event',
    file: 'src/consumer/tables/item-arrays.ts',
    from: 'return event.type !== voidEventType',
    to: 'return event.type !== undefined',
    caughtBy: {
      file: reused,
      test: 'what a relay publishes again, and what an operator skipped after it had been published, is no other content',
    },
  },
  {
    mutant: 'puts aside what is not believed, for a version that takes it as verified',
    file: 'src/consumer/receive/arrivals.ts',
    from: "return distrust === undefined ? fate : 'ignore'",
    to: 'return fate',
    caughtBy: {
      file: 'src/consumer/batch/mixed-versions.pg.test.ts',
      test: 'an event of an unread stream that is not believed is refused, and neither put aside nor a dead letter (ignore)',
    },
  },
]
