/**
 * What signatures cost: time on processors of a consumer per event, unsigned, with HMAC-SHA256 and with Ed25519, in one run; and what
 * it takes to sign and to verify one message of 300 bytes by itself.
 */
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { createSigner, createVerifier, type Signer, type Verifier } from '../src/core/event/signing.ts'
import { cpuPerEvent, openConsumerBench, toMessage, videos, type ConsumerBench } from './consumer/consumer-bench.ts'
import { defineBench, type Bench } from './harness.ts'

interface Pair {
  readonly signer: Signer
  readonly verifier: Verifier
}

const secret = randomBytes(32)
const { privateKey, publicKey } = generateKeyPairSync('ed25519')
const hmac: Pair = {
  signer: createSigner({ keyId: 'bench', secret }),
  verifier: createVerifier({ keys: [{ keyId: 'bench', secret }] }),
}
const ed25519: Pair = {
  signer: createSigner({ keyId: 'bench', privateKey }),
  verifier: createVerifier({ keys: [{ keyId: 'bench', publicKey }] }),
}

function project(bench: ConsumerBench, pair?: Pair): Promise<number> {
  const verifying = pair === undefined ? {} : { verify: 'required' as const, verifier: pair.verifier, signer: pair.signer }
  return cpuPerEvent(bench, { count: 20_000, batchSize: 500, concurrency: 4, ...verifying }, (consumer) =>
    consumer.project(videos, {
      table: 'video',
      key: 'video_id',
      set: ({ data }) => ({ title: data.title, url: data.url, views: data.views }),
    }),
  )
}

type Message = ReturnType<typeof toMessage>

/** One message, again and again. */
function alone({ facts, quick }: ConsumerBench, calls: number, prepare: (message: Message) => () => unknown): number {
  const [call] = facts(1).map((fact) => prepare(toMessage(fact)))
  const times = quick ? calls / 5 : calls
  const startedAt = process.cpuUsage()
  for (let n = 0; n < times; n += 1) call?.()
  const { user, system } = process.cpuUsage(startedAt)
  return (user + system) / times
}

const signing =
  ({ signer }: Pair) =>
  (message: Message) =>
  () =>
    signer.sign(message)
const verifying =
  ({ signer, verifier }: Pair) =>
  (message: Message) => {
    const signed = signer.sign(message)
    return () => verifier.verify(signed)
  }

export const bench: Bench = defineBench<ConsumerBench>({
  name: 'signing',
  summary: 'time on processors per event of a consumer that verifies, and of a signature alone',
  unit: 'µs/event',
  setup: ({ quick }) => openConsumerBench(quick),
  close: (context) => context.close(),
  contenders: {
    'project, unsigned': (context) => project(context),
    'project, HMAC-SHA256': (context) => project(context, hmac),
    'project, Ed25519': (context) => project(context, ed25519),
    'sign, HMAC-SHA256': (context) => alone(context, 100_000, signing(hmac)),
    'verify, HMAC-SHA256': (context) => alone(context, 100_000, verifying(hmac)),
    'sign, Ed25519': (context) => alone(context, 2_000, signing(ed25519)),
    'verify, Ed25519': (context) => alone(context, 2_000, verifying(ed25519)),
  },
  bars: [
    {
      name: 'HMAC ≤ 1.15 × unsigned',
      target: 1.15,
      direction: 'at-most',
      of: (s) => s('project, HMAC-SHA256') / s('project, unsigned'),
    },
  ],
})
