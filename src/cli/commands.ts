/** Every command of the CLI, by the words that call it. Help, parsing and the reference page follow this table. */
import { backfillCommand } from './commands/backfill.ts'
import type { Command } from './frame/command.ts'
import { consumeCommand } from './commands/consume.ts'
import { pauseCommand, resumeCommand } from './commands/consumer-pause.ts'
import { repairGapCommand, replayCommand } from './commands/consumer-repair.ts'
import { dashboardCommand } from './commands/dashboard.ts'
import { devCommand } from './commands/dev.ts'
import { dlqDiscard, dlqList, dlqRedrive, dlqShow } from './commands/dead-letters.ts'
import { doctor } from './commands/doctor.ts'
import { drillList, drillRun } from './commands/drill.ts'
import { migrateAdopt, migrateRoles, migrateSql, migrateStatus, migrateUp } from './commands/migrate.ts'
import { outboxCdc, outboxCdcOff, outboxCdcOn } from './commands/cdc.ts'
import { outboxLanes, outboxList, outboxStatusCommand } from './commands/outbox.ts'
import { outboxDrop, outboxRedrive, outboxSkip } from './commands/outbox-parked.ts'
import { outboxPause, outboxResume } from './commands/outbox-pause.ts'
import { doctorPubsubCommand, provision } from './commands/provision.ts'
import { pubsubServerCommand } from './commands/pubsub-server.ts'
import { rebuildCommand } from './commands/rebuild.ts'
import { refusedCommand } from './commands/refused.ts'
import { relayCommand } from './commands/relay.ts'
import { statusCommand } from './commands/status.ts'
import { traceCommand } from './commands/trace.ts'

export const commands: Readonly<Record<string, Command>> = {
  dev: devCommand,
  status: statusCommand,
  trace: traceCommand,
  dashboard: dashboardCommand,
  'migrate up': migrateUp,
  'migrate status': migrateStatus,
  'migrate sql': migrateSql,
  'migrate adopt': migrateAdopt,
  'migrate roles': migrateRoles,
  relay: relayCommand,
  backfill: backfillCommand,
  'outbox status': outboxStatusCommand,
  'outbox list': outboxList,
  'outbox redrive': outboxRedrive,
  'outbox skip': outboxSkip,
  'outbox drop': outboxDrop,
  'outbox pause': outboxPause,
  'outbox resume': outboxResume,
  'outbox lanes': outboxLanes,
  'outbox cdc': outboxCdc,
  'outbox cdc on': outboxCdcOn,
  'outbox cdc off': outboxCdcOff,
  consume: consumeCommand,
  pause: pauseCommand,
  resume: resumeCommand,
  rebuild: rebuildCommand,
  replay: replayCommand,
  'repair-gap': repairGapCommand,
  'dlq list': dlqList,
  'dlq show': dlqShow,
  'dlq redrive': dlqRedrive,
  'dlq discard': dlqDiscard,
  refused: refusedCommand,
  provision,
  doctor,
  'doctor pubsub': doctorPubsubCommand,
  'drill list': drillList,
  'drill run': drillRun,
  'pubsub-server': pubsubServerCommand,
}
