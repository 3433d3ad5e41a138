/**
 * The plan of the house: the features, what each may import, its rooms in the order of the path, and its faces.
 *
 * From this list the import rules of `.oxlintrc.json` are written and the rules of `scripts/room-rules.ts` are checked
 * (`node scripts/rooms.ts`), ARCHITECTURE.md's picture is drawn, and `npm run map` names the rooms.
 */

export interface Feature {
  /** Where it lives, if it is a package of its own: no other feature imports it by path. @default `src/` and its name */
  readonly folder?: string
  /** The features that it may import. */
  readonly imports: readonly string[]
  /** The packages that it may import beside Node's modules. @default none */
  readonly packages?: readonly string[] | 'any'
  /** Its folders in the order of the path; `.` is its own files. One imports itself and those before it; those in one list, not each other. */
  readonly rooms?: readonly (string | readonly string[])[]
  /** What features of other folders may import of it: files, and folders that end with `/`. @default everything */
  readonly faces?: readonly string[]
  /** Whether it may read the process and end it. @default false */
  readonly touchesProcess?: boolean
  /** Whether it may import statements (`*.sql.ts`). @default true */
  readonly hasStatements?: boolean
}

const floor = ['core', 'postgres']
const transports = ['transport/port', 'transport/memory', 'transport/postgres', 'transport/pubsub', 'transport/kafka']
const parts = ['outbox', 'consumer', 'projection', 'command', 'ingest']
const library = [...floor, 'codec', ...transports, ...parts, 'telemetry']

export const features: Readonly<Record<string, Feature>> = {
  core: { imports: [], rooms: ['.', 'encoding', 'service', 'event'] },
  postgres: {
    imports: ['core'],
    packages: ['pg'],
    rooms: ['query', 'transaction', 'adapters', ['lanes', 'schema', 'clock', 'blobs'], '.'],
    faces: [
      'connect.ts',
      'connect-failure.ts',
      'listen.ts',
      'operation.sql.ts',
      'query/',
      'transaction/',
      'lanes/',
      'clock/',
      'schema/',
    ],
  },
  codec: { imports: ['core'], packages: ['avsc', '@bufbuild/protobuf', '@bufbuild/protobuf/*'] },
  'transport/port': { imports: ['core'], faces: ['transport.ts', 'topic-id.ts', 'ack-all.ts'] },
  'transport/memory': { imports: ['core', 'transport/port'], faces: ['memory.ts'] },
  'transport/postgres': { imports: [...floor, 'transport/port'], faces: ['postgres-transport.ts'] },
  'transport/pubsub': {
    imports: ['core', 'transport/port'],
    packages: ['@google-cloud/pubsub', '@google-cloud/pubsub/**', 'google-gax'],
    rooms: ['client', ['receive', 'admin'], '.'],
    faces: ['pubsub.ts', 'admin/'],
  },
  'transport/kafka': {
    imports: ['core', 'transport/port'],
    packages: ['@platformatic/kafka', 'kafkajs'],
    rooms: ['client/wire', 'client', ['publish', 'receive'], '.'],
    faces: ['kafka.ts', 'admin.ts'],
  },
  projection: { imports: floor },
  outbox: {
    imports: [...floor, 'transport/port'],
    rooms: ['tables', 'wake-up', '.', 'backlog', 'relay', ['backfill', 'operate']],
    faces: ['outbox.ts', 'relay/relay.ts', 'relay/relay-options.ts', 'backfill/backfill.ts', 'operate/'],
  },
  consumer: {
    imports: [...floor, 'projection', 'transport/port'],
    rooms: ['model', 'tables', 'failure', 'batch', ['receive', 'stored'], 'operate', '.'],
    faces: ['consumer.ts', 'model/', 'operate/'],
  },
  command: {
    imports: floor,
    rooms: ['model', 'cache', 'pipeline', '.'],
    faces: ['commands.ts', 'http-status.ts', 'model/', 'cache/cache.ts', 'cache/redis.ts'],
  },
  ingest: { imports: [...floor, 'transport/port'] },
  telemetry: { imports: ['core'], packages: ['@opentelemetry/api'] },
  integrations: {
    imports: ['core', 'command', 'ingest', 'projection'],
    packages: ['fastify', 'express', 'hono', 'hono/*', '@nestjs/*'],
  },
  ops: {
    imports: library,
    rooms: ['connect', 'rebuild', ['status', 'trace', 'provision', 'repair'], ['cdc', 'doctor']],
  },
  dashboard: { imports: [...library, 'ops'], hasStatements: false },
  'pubsub-server': {
    folder: 'packages/pubsub-server/src',
    imports: [],
    packages: ['@grpc/grpc-js', 'protobufjs'],
    rooms: ['protocol', 'model', 'queue', 'schema', 'broker', 'operations', 'storage', 'services', '.'],
  },
  // What starts and breaks processes may touch them.
  testing: {
    imports: [...library, 'ops', 'integrations'],
    packages: 'any',
    rooms: ['history', 'kit', 'faults', 'process', ['servers', 'contract'], '.'],
    touchesProcess: true,
  },
  drill: {
    imports: [...library, 'ops', 'testing'],
    rooms: ['target', 'system', 'stage', ['drills', 'run'], '.'],
    touchesProcess: true,
  },
  config: {
    imports: [...library, 'ops', 'testing', 'drill', 'dashboard'],
    touchesProcess: true,
    hasStatements: false,
  },
  cli: {
    imports: [...library, 'ops', 'testing', 'drill', 'dashboard', 'config'],
    rooms: ['frame', 'commands', '.'],
    touchesProcess: true,
    hasStatements: false,
  },
}

/** Sources in one folder, at most; a table of commands has a file for each. */
export const folderCap = 14
export const uncapped: readonly string[] = ['src/cli/commands']

/** Files that a file may import, at most; entries and tables of what there is are excepted. */
export const hubCap = 16
export const tables: readonly string[] = ['src/cli/commands.ts', 'src/drill/drills.ts']

/** A file with fewer lines of code belongs into the one that imports it. */
export const floorLines = 40

/** Pronouns in the place of a subject, at most, in one file. */
export const pronounCap = 2

/** Names that mean two things on purpose, with the reason. */
export const homonyms: Readonly<Record<string, string>> = {}

/** The folder of a feature. */
export function folderOf(name: string): string {
  return features[name]?.folder ?? `src/${name}`
}

/** The feature that a file belongs to. Entries at the root of `src` belong to none. */
export function featureOf(path: string): string | undefined {
  return Object.keys(features).find((name) => path.startsWith(`${folderOf(name)}/`))
}

/** The room of a file within its feature: the longest that it lies in; `.` for the feature's own files. */
export function roomOf(feature: string, path: string): string {
  const folder = path
    .slice(folderOf(feature).length + 1)
    .split('/')
    .slice(0, -1)
    .join('/')
  const rooms = (features[feature]?.rooms ?? []).flat().filter((room) => folder === room || folder.startsWith(`${room}/`))
  return rooms.toSorted((a, b) => b.length - a.length)[0] ?? (folder === '' ? '.' : folder)
}
