/**
 * For each alert: series under which it must fire, and series just short of it under which it must not.
 *
 * Values are promtool's: `0x20` is 0 for 20 minutes more, `0+60x20` grows by 60 a minute, `_` is a minute without a scrape.
 */
export interface RuleCase {
  readonly fires: Readonly<Record<string, string>>
  readonly quiet: Readonly<Record<string, string>>
  /** When it is looked at. @default '20m' */
  readonly at?: string
}

const job = 'job="shop",instance="a"'
const consumer = `${job},consumer="catalog"`
const executed = `waybill_command_outcomes_total{${job},command="Pay",outcome="executed"}`
const alive = { [`waybill_outbox_oldest_due_age_seconds{${job}}`]: '0x120' }

/** A gauge above its threshold, and at it. */
function gauge(name: string, labels: string, [high, low]: readonly [number, number]): RuleCase {
  return { fires: { [`${name}{${labels}}`]: `${high}x120` }, quiet: { [`${name}{${labels}}`]: `${low}x120` } }
}

/** A part of a whole that grows by 100 a minute. */
function ratio(part: string, whole: string, [high, low]: readonly [number, number]): RuleCase {
  const series = (each: number) => ({ [part]: `0+${each}x120`, [whole]: '0+100x120' })
  return { fires: series(high), quiet: series(low) }
}

function quantile(name: string, labels: string, [slow, quick]: readonly [string, string]): RuleCase {
  const series = (bound: string) => ({
    [`${name}_bucket{${labels},le="${bound}"}`]: '0+100x120',
    [`${name}_bucket{${labels},le="+Inf"}`]: '0+100x120',
  })
  return { fires: series(slow), quiet: series(quick) }
}

/** A counter that nobody had seen before it counted, and one that was there all the time and stands still. */
function event(series: string): RuleCase {
  return { fires: { [series]: '_x14 1x120' }, quiet: { [series]: '1x120' }, at: '20m' }
}

export const ruleCases: Readonly<Record<string, RuleCase>> = {
  WaybillRelayStopped: {
    fires: {
      [`waybill_outbox_unowned_lanes{${job},outbox="a"}`]: '1x120',
      [`waybill_relay_breaker_open{${job},outbox="a"}`]: '0x120',
      [`waybill_relay_breaker_open{${job},outbox="b"}`]: '1x120',
    },
    // Relays that cannot publish give their lanes back between two probes, and somebody else counts.
    quiet: {
      [`waybill_outbox_unowned_lanes{${job},outbox="a"}`]: '64x120',
      [`waybill_relay_breaker_open{${job},outbox="a"}`]: '1x120',
      [`waybill_outbox_unowned_lanes{${job},outbox="b"}`]: '0x120',
    },
  },
  WaybillOutboxUnreported: { fires: { [`up{${job}}`]: '1x120' }, quiet: alive },
  WaybillOutboxStale: gauge('waybill_outbox_oldest_due_age_seconds', job, [61, 60]),
  WaybillOutboxBacklog: gauge('waybill_outbox_backlog', `${job},state="due"`, [50_001, 50_000]),
  WaybillEventParked: gauge('waybill_outbox_backlog', `${job},state="parked"`, [1, 0]),
  WaybillEventMissing: {
    fires: { [`waybill_relay_events_missing_total{${job}}`]: '0x14 1x120' },
    quiet: { [`waybill_relay_events_missing_total{${job}}`]: '0x120' },
  },
  WaybillPublishFailing: ratio(`waybill_relay_failures_total{${job}}`, `waybill_relay_published_total{${job}}`, [6, 5]),
  WaybillBrokerUnreachable: {
    // What is due is counted by who has a lane, and relays that cannot publish give theirs up.
    fires: {
      [`waybill_relay_breaker_open{${job},outbox="a"}`]: '1x120',
      [`waybill_outbox_oldest_due_age_seconds{${job},outbox="a"}`]: '1 1 stale',
    },
    // The broker of one may be back, and nobody has asked; that of the other is there.
    quiet: {
      [`waybill_relay_breaker_open{${job},outbox="a"}`]: '1x120',
      [`waybill_outbox_oldest_due_age_seconds{${job},outbox="a"}`]: '0x120',
      [`waybill_relay_breaker_open{${job},outbox="b"}`]: '0x120',
      [`waybill_outbox_oldest_due_age_seconds{${job},outbox="b"}`]: '1x120',
    },
  },
  WaybillPublishSlow: quantile('waybill_relay_publish_delay_seconds', job, ['10', '5']),
  WaybillLanesLost: {
    fires: { [`waybill_lanes_lost_total{${job}}`]: '0+10x120' },
    quiet: { [`waybill_lanes_lost_total{${job}}`]: '0+4x120' },
  },
  WaybillOldSnapshot: gauge('waybill_outbox_oldest_snapshot_age_seconds', job, [901, 900]),
  WaybillConsumerStopped: {
    fires: { [`waybill_consumer_in_flight{${consumer}}`]: '0x5' },
    quiet: { [`waybill_consumer_in_flight{${consumer}}`]: '0x120' },
  },
  WaybillDeadLetters: event(`waybill_consumer_dead_letters_total{${consumer},reason="failed"}`),
  WaybillDeadLettersUnsettled: gauge('waybill_consumer_unsettled_dead_letters', consumer, [1, 0]),
  WaybillForked: event(`waybill_consumer_forks_total{${consumer}}`),
  WaybillMessagesRefused: event(`waybill_consumer_refused_total{${consumer},reason="forged"}`),
  WaybillIdReused: event(`waybill_consumer_ids_reused_total{${consumer}}`),
  WaybillVersionJumped: event(`waybill_consumer_version_jumps_total{${consumer}}`),
  WaybillKeyStopped: event(`waybill_consumer_stopped_keys_total{${consumer}}`),
  WaybillConsumerLagging: gauge('waybill_consumer_lag_seconds', consumer, [61, 60]),
  WaybillStoredLagging: gauge('waybill_consumer_stored_lag_seconds', consumer, [301, 300]),
  WaybillConsumerStuck: gauge('waybill_consumer_oldest_in_flight_seconds', consumer, [301, 300]),
  WaybillConsumerFailing: ratio(
    `waybill_consumer_failures_total{${consumer}}`,
    `waybill_consumer_applied_total{${consumer}}`,
    [6, 5],
  ),
  WaybillHandlerSlow: quantile('waybill_consumer_handler_duration_seconds', `${consumer},event_type="Paid"`, ['10', '5']),
  WaybillGap: gauge('waybill_consumer_oldest_waiting_seconds', consumer, [121, 120]),
  WaybillAcksUnconfirmed: ratio(
    `waybill_consumer_ack_unconfirmed_total{${consumer}}`,
    `waybill_consumer_applied_total{${consumer}}`,
    [11, 10],
  ),
  WaybillReceivingDisturbed: {
    fires: { [`waybill_consumer_disturbances_total{${consumer},topic="t"}`]: '0+7x120' },
    quiet: { [`waybill_consumer_disturbances_total{${consumer},topic="t"}`]: '0+6x120' },
  },
  WaybillBrokerLag: gauge('waybill_transport_lag_messages', `${consumer},topic="t",partition="0"`, [100_001, 100_000]),
  WaybillConsumerPaused: { ...gauge('waybill_consumer_paused', consumer, [1, 0]), at: '90m' },
  WaybillInboxMemoryShort: gauge('waybill_inbox_memory_short_total', job, [1, 0]),
  WaybillCommandsUnavailable: ratio(
    `waybill_command_outcomes_total{${job},command="Pay",outcome="unavailable"}`,
    `waybill_command_outcomes_total{${job},command="Pay",outcome="executed"}`,
    [2, 1],
  ),
  WaybillCommandsThrowing: ratio(
    `waybill_command_outcomes_total{${job},command="Pay",outcome="error"}`,
    `waybill_command_outcomes_total{${job},command="Pay",outcome="executed"}`,
    [6, 5],
  ),
  WaybillCommandConflicts: ratio(
    `waybill_command_outcomes_total{${job},command="Pay",outcome="version_conflict"}`,
    `waybill_command_outcomes_total{${job},command="Pay",outcome="executed"}`,
    [6, 5],
  ),
  WaybillCommandsOverloaded: ratio(
    `waybill_command_outcomes_total{${job},command="Pay",outcome="overloaded"}`,
    `waybill_command_outcomes_total{${job},command="Pay",outcome="executed"}`,
    [6, 5],
  ),
  WaybillCacheLeftOut: gauge('waybill_command_cache_breaker_open', job, [1, 0]),
  WaybillCleanupStopped: {
    fires: { [executed]: '1x120' },
    quiet: { [executed]: '1x120', [`waybill_command_cleanup_lag_seconds{${job}}`]: '0x120' },
  },
  WaybillCleanupLagging: gauge('waybill_command_cleanup_lag_seconds', job, [301, 300]),
  WaybillIngestRefusing: ratio(
    `waybill_ingest_refused_total{${job},event="Seen",code="unavailable"}`,
    `waybill_ingest_accepted_total{${job},event="Seen"}`,
    [2, 1],
  ),
  WaybillServiceEnded: event(`waybill_service_ended_by_error_total{${job},service="relay"}`),
  WaybillServiceFailing: {
    fires: { [`waybill_service_failures_total{${job},service="relay"}`]: '0+4x120' },
    quiet: { [`waybill_service_failures_total{${job},service="relay"}`]: '0+3x120' },
  },
  WaybillHooksFailing: {
    fires: { [`waybill_transaction_hook_failures_total{${job}}`]: '0x14 1x120' },
    quiet: { [`waybill_transaction_hook_failures_total{${job}}`]: '0x120' },
  },
}
