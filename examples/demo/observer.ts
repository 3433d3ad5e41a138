/**
 * Looks into both databases, straight past every fault, and enters what it finds into the ledger.
 *
 * Commits are read on per aggregate from the last version known, so none is missed, however transactions overlap. Effects are read
 * on from the first number that is missing, for as long as a transaction may live that has it. Effects are read before commits and
 * entered after them: an effect is never seen without its commit.
 */
import type { Queryable } from 'waybill'
import { EffectCursor } from './effect-cursor.ts'
import { RunHistory } from './history.ts'
import type { Commit, Effect, Ledger } from './ledger.ts'

export interface Sizes {
  /** Committed events that the broker has not confirmed. */
  readonly backlog: number
  readonly deadLetters: number
}

export interface ObserverOptions {
  readonly video: Queryable
  readonly catalog: Queryable
  readonly ledger: Ledger
  readonly history: RunHistory
  /** The catalog's name as a consumer. */
  readonly consumer: string
  /** Whether the event was made up by the demo itself, to be turned away. */
  readonly isForged: (eventId: string) => boolean
}

const keptCommits = 20

export class Observer {
  sizes: Sizes = { backlog: 0, deadLetters: 0 }
  /** Effects of forged events, each of which is applied once and changes no row. */
  forgedEffects = 0
  /** The newest commits, newest last. */
  readonly recent: Commit[] = []
  readonly #options: ObserverOptions
  readonly #effects = new EffectCursor()

  constructor(options: ObserverOptions) {
    this.#options = options
  }

  async look(): Promise<void> {
    const { ledger, history, consumer } = this.#options
    const effects = await this.#readEffects()
    // What was answered later than this may lack its commit below.
    const readFromMs = performance.now()
    for (const commit of await this.#readCommits()) {
      ledger.commit(commit)
      const aggregate = RunHistory.of(commit)
      history.record({ op: 'commit', event: commit.eventId, aggregate, version: commit.version })
      if (typeof commit.edit === 'string') history.record({ op: 'effect', request: commit.edit })
      this.recent.push(commit)
    }
    this.recent.splice(0, this.recent.length - keptCommits)
    for (const effect of effects) {
      const { eventId: event, version } = effect
      if (this.#options.isForged(event)) {
        this.forgedEffects += 1
        continue
      }
      ledger.effect(effect)
      history.record({ op: 'apply', consumer, event, aggregate: RunHistory.of(effect), version })
    }
    for (const { eventId, atMs } of await this.#readReceipts()) ledger.publish(eventId, atMs)
    for (const at of await this.#readProjections()) {
      if (ledger.project(at)) history.record({ op: 'observe', consumer, aggregate: RunHistory.of(at), version: at.version })
    }
    this.sizes = await this.#readSizes()
    ledger.review(readFromMs)
  }

  async #readEffects(): Promise<Effect[]> {
    const found = await select<Effect & { readonly number: number }>(
      this.#options.catalog,
      `select id::int8::text::float8 as number, event_id::text as "eventId", aggregate_type as type, aggregate_id as id,
              version::text::float8 as version, extract(epoch from at)::float8 * 1000 as "atMs"
         from effect where effect.id > $1::text::bigint order by effect.id`,
      [String(this.#effects.position)],
    )
    return found.filter(({ number }) => this.#effects.enter(number, performance.now()))
  }

  #readCommits(): Promise<Commit[]> {
    return select(
      this.#options.video,
      `with seen as (select * from jsonb_to_recordset($1::text::jsonb) as s(type text, id text, version bigint))
       select v.aggregate_type as type, v.aggregate_id as id, o.event_id as "eventId", o.version, o.at_ms as "atMs", o.edit
         from waybill.aggregate_version v
         left join seen s on s.type = v.aggregate_type and s.id = v.aggregate_id
        cross join lateral (
          select o.id::text as event_id, o.version::text::float8 as version, extract(epoch from o.occurred_at)::float8 * 1000 as at_ms,
                 case when o.aggregate_type = 'video' then convert_from(o.payload, 'UTF8')::jsonb ->> 'edit' end as edit
            from waybill.outbox o
           where o.aggregate_type = v.aggregate_type and o.aggregate_id = v.aggregate_id and o.version > coalesce(s.version, 0)
           order by o.version) o`,
      [JSON.stringify(this.#options.ledger.cursors())],
    )
  }

  async #readReceipts(): Promise<{ readonly eventId: string; readonly atMs: number }[]> {
    const waiting = [...this.#options.ledger.flights].flatMap(([id, { publishedAtMs }]) =>
      publishedAtMs === undefined ? [id] : [],
    )
    if (waiting.length === 0) return []
    return await select(
      this.#options.video,
      `select event_id::text as "eventId", extract(epoch from min(published_at))::float8 * 1000 as "atMs"
         from waybill.outbox_receipt where event_id = any($1::text::uuid[]) group by event_id`,
      [`{${waiting.join(',')}}`],
    )
  }

  #readProjections(): Promise<{ readonly type: string; readonly id: string; readonly version: number }[]> {
    return select(
      this.#options.catalog,
      `select 'video' as type, video_id as id, version::text::float8 as version from catalog_video
       union all select 'player', player_id, version::text::float8 from catalog_player`,
    )
  }

  async #readSizes(): Promise<Sizes> {
    const [owner] = await select<{ count: number }>(
      this.#options.video,
      'select count(*)::int as count from waybill.outbox_dispatch',
    )
    const [reader] = await select<{ count: number }>(
      this.#options.catalog,
      `select count(*)::int as count from waybill.dead_letter where state = 'dead'`,
    )
    return { backlog: owner?.count ?? 0, deadLetters: reader?.count ?? 0 }
  }
}

/** What every aggregate is, at its owner and in the catalog. */
export interface States {
  readonly owner: ReadonlyMap<string, string>
  readonly catalog: ReadonlyMap<string, string>
}

export async function readStates(video: Queryable, catalog: Queryable): Promise<States> {
  const owner = await select<{ key: string; state: string }>(
    video,
    `select 'video ' || id as key, json_build_array(title, edit)::text as state from video
     union all
     select 'player ' || id, (select coalesce(jsonb_object_agg(resource, amount), '{}') from resource where player_id = p.id)::text
       from player p`,
  )
  const reader = await select<{ key: string; state: string }>(
    catalog,
    `select 'video ' || video_id as key, json_build_array(title, edit)::text as state from catalog_video where deleted_at is null
     union all select 'player ' || player_id, resources::text from catalog_player where deleted_at is null`,
  )
  const mapOf = (rows: typeof owner): Map<string, string> => new Map(rows.map(({ key, state }) => [key, state]))
  return { owner: mapOf(owner), catalog: mapOf(reader) }
}

async function select<Row>(db: Queryable, text: string, values: readonly string[] = []): Promise<Row[]> {
  const { rows } = await db.query(text, values)
  return rows as Row[]
}
