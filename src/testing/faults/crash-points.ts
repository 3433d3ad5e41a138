/**
 * Puts the places of a role around the ports that a service gives to this package, so that a test can crash the service there.
 *
 * Armed by `startChild(script, { failpoint: { name: 'relay: rows read', action: 'freeze' } })`; without an armed place the ports
 * do what they did before. The code between the ports knows nothing of it.
 */
import { setImmediate } from 'node:timers/promises'
import type { CommandCache } from '../../command/cache/cache.ts'
import { defaults } from '../../core/defaults.ts'
import { markOf, markTx, type Database, type Queryable, type Tx } from '../../postgres/query/database.ts'
import type { KafkaClient } from '../../transport/kafka/client/kafka-client.ts'
import { kafkaErrorName } from '../../transport/kafka/client/errors.ts'
import type { Acker, Delivery, Publisher, Transport } from '../../transport/port/transport.ts'
import { crashPlaces, crashPointName, type CrashMoment, type CrashRole } from './crash-places.ts'
import { createFailpoints, withFailpoints, type FailpointPlace, type Failpoints } from './failpoint.ts'

export interface CrashPoints {
  database<Native>(db: Database<Native>): Database<Native>
  publisher<Port extends Publisher>(publisher: Port): Port
  receiver(transport: Pick<Transport, 'receive'>): Pick<Transport, 'receive'>
  cache(cache: CommandCache): CommandCache
  /** For the option `client` of the Kafka transport. */
  kafkaClient(client: KafkaClient): KafkaClient
}

export interface CrashPointOptions {
  /** @default those that the parent process armed */
  readonly failpoints?: Failpoints
  /** The schema of our tables, by which our statements are told from the service's own. @default 'waybill' */
  readonly schema?: string
}

export function createCrashPoints(role: CrashRole, options: CrashPointOptions = {}): CrashPoints {
  const { failpoints = createFailpoints(), schema = defaults.schema } = options
  const places = portPlaces(role, schema)
  const pass = async (step: Step, sent: readonly string[] = []): Promise<void> => {
    for (const { name, of } of places.steps.filter((place) => place.step === step))
      if (of === undefined || sent.some((text) => of.test(text))) await failpoints.hit(name)
  }
  return {
    database: (db) => {
      const around = (tx: Tx, texts: string[]): Tx<never> =>
        markTx(withFailpoints(noting(tx as Tx<never>, texts), { failpoints, places: places.statements }), markOf(tx))
      // A service's own statements are those of its transactions; outside of one it only looks.
      const outside = withFailpoints({ query: db.query.bind(db) }, { failpoints, places: places.ourStatements })
      return {
        query: (text, values) => outside.query(text, values),
        attempt: async (begin, work) => {
          let sent: Promise<void> | undefined
          const texts: string[] = []
          const result = await db.attempt(begin, async (tx) => {
            await pass('begun')
            const value = await work(around(tx, texts))
            await pass('committing', texts)
            // The driver writes COMMIT in this turn, and reads the answer in a later one.
            sent = setImmediate().then(() => pass('commit-sent', texts))
            return value
          })
          await sent
          await pass('committed', texts)
          return result
        },
      }
    },
    publisher: (publisher) => withFailpoints(publisher, { failpoints, places: places.publish }),
    receiver: (transport) => ({
      receive: (receiving) => {
        // One after the other, or a delivery could overtake the one that is at the place.
        let line = Promise.resolve()
        const watch = deliveryWatch(failpoints, places.delivery)
        const onDelivery = (delivery: Delivery): void => {
          const watched = watch(delivery)
          line = line.then(() => pass('received')).then(() => receiving.onDelivery(watched))
        }
        return transport.receive({ ...receiving, onDelivery })
      },
    }),
    cache: (cache) => withFailpoints(cache, { failpoints, places: places.cache }),
    kafkaClient: (client) => withFailpoints(client, { failpoints, places: places.kafka }),
  }
}

/** Takes down what is sent in a transaction. */
function noting<Port extends Queryable>(tx: Port, texts: string[]): Port {
  const query: Queryable['query'] = (text, values) => {
    texts.push(text)
    return tx.query(text, values)
  }
  return new Proxy(tx, {
    get: (target, property) => (property === 'query' ? query : Reflect.get(target, property, target)),
  })
}

/** Puts the places around deliveries, whether they are acknowledged one by one or together. */
function deliveryWatch(failpoints: Failpoints, places: readonly FailpointPlace[]): (delivery: Delivery) => Delivery {
  const together = places.map((place) => ({ ...place, method: 'ackAll' }))
  // Those who name the same acker are acknowledged by one call.
  const ackers = new WeakMap<Acker, Acker>()
  const watchAcker = (acker: Acker): Acker => {
    const watched = ackers.get(acker) ?? withFailpoints(acker, { failpoints, places: together })
    ackers.set(acker, watched)
    return watched
  }
  return (delivery) =>
    new Proxy(withFailpoints(delivery, { failpoints, places }), {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property, target)
        return property === 'acker' && value !== undefined ? watchAcker(value as Acker) : value
      },
    })
}

/** What no method of a port stands for. */
type Step = Extract<CrashMoment, { transaction: unknown }>['transaction'] | 'received'

interface PortPlaces {
  readonly statements: readonly FailpointPlace[]
  readonly ourStatements: readonly FailpointPlace[]
  readonly publish: readonly FailpointPlace[]
  readonly delivery: readonly FailpointPlace[]
  readonly cache: readonly FailpointPlace[]
  readonly kafka: readonly FailpointPlace[]
  /** Places that stand around no method. */
  readonly steps: readonly StepPlace[]
}

interface StepPlace {
  readonly name: string
  readonly step: Step
  readonly of?: RegExp | undefined
}

function portPlaces(role: CrashRole, schema: string): PortPlaces {
  const own = crashPlaces.filter((place) => place.role === role)
  const all = own.map((place) => ({ name: crashPointName(place), at: place.at }))
  const around = (make: (at: CrashMoment) => Omit<FailpointPlace, 'name'> | undefined): FailpointPlace[] =>
    all.flatMap(({ name, at }) => {
      const place = make(at)
      return place === undefined ? [] : [{ name, ...place }]
    })
  const statementsOf = (isChosen: (statement: RegExp | 'own') => boolean): FailpointPlace[] =>
    around((at) => {
      if (!('statement' in at) || !isChosen(at.statement)) return undefined
      return { method: 'query', when: at.when, match: (text) => isMeant(at.statement, String(text), schema) }
    })
  return {
    statements: statementsOf(() => true),
    ourStatements: statementsOf((statement) => statement !== 'own'),
    publish: around((at) => ('publish' in at ? { method: 'publish', when: at.publish } : undefined)),
    delivery: around((at) =>
      'delivery' in at && at.delivery !== 'received'
        ? { method: 'ack', when: at.delivery === 'acking' ? 'before' : 'after' }
        : undefined,
    ),
    cache: around((at) => ('cache' in at ? { method: at.cache, when: at.when } : undefined)),
    kafka: around((at) => {
      if (!('kafka' in at)) return undefined
      const place = { method: at.kafka, when: at.when }
      return at.when === 'failed' ? { ...place, match: isRebalance } : place
    }),
    steps: all.flatMap(({ name, at }): StepPlace[] => {
      if ('transaction' in at) return [{ name, step: at.transaction, of: at.of }]
      return 'delivery' in at && at.delivery === 'received' ? [{ name, step: at.delivery }] : []
    }),
  }
}

function isRebalance(error: unknown): boolean {
  return kafkaErrorName(error) === 'REBALANCE_IN_PROGRESS'
}

/** Our statements name our schema, or write the rows of a projection, or steer a transaction. */
function isMeant(statement: RegExp | 'own', text: string, schema: string): boolean {
  if (statement !== 'own') return statement.test(text)
  return !text.includes(`"${schema}".`) && !/\bjson_populate_recordset\b|^\s*(?:savepoint|rollback|set)\b/.test(text)
}
