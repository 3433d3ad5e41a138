/** Every command of the CLI, by the words that call it. Help, parsing and the reference page follow this table. */
import { backfillCommand } from './backfill-command.ts'
import type { Command } from './command.ts'
import { consumeCommand } from './consume-command.ts'
import { pauseCommand, resumeCommand } from './consumer-pause-commands.ts'
import { repairGapCommand, replayCommand } from './consumer-repair-commands.ts'
import { dashboardCommand } from './dashboard-command.ts'
import { devCommand } from './dev-command.ts'
import { dlqDiscard, dlqList, dlqRedrive, dlqShow } from './dlq-commands.ts'
import { doctor } from './doctor-command.ts'
import { drillList, drillRun } from './drill-commands.ts'
import { migrateAdopt, migrateRoles, migrateSql, migrateStatus, migrateUp } from './migrate-commands.ts'
import { outboxCdc, outboxCdcOff, outboxCdcOn } from './outbox-cdc-commands.ts'
import { outboxLanes, outboxList, outboxStatusCommand } from './outbox-commands.ts'
import { outboxDrop, outboxRedrive, outboxSkip } from './outbox-parked-commands.ts'
import { outboxPause, outboxResume } from './outbox-pause-commands.ts'
import { doctorPubsubCommand, provision } from './provision-commands.ts'
import { pubsubServerCommand } from './pubsub-server-command.ts'
import { rebuildCommand } from './rebuild-command.ts'
import { refusedCommand } from './refused-command.ts'
import { relayCommand } from './relay-command.ts'
import { statusCommand } from './status-command.ts'
import { traceCommand } from './trace-command.ts'

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
