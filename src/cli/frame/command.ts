/**
 * What a command of the CLI is: data that help and parsing are made from, and one function.
 *
 * A command returns its result as data and as text; the frame prints one of them to stdout. Everything else it has to say
 * goes to stderr through `note`. It touches neither the process nor the environment.
 */
import type { Settings } from './settings.ts'

/** What the CLI ends with. */
export const exitCodes = {
  ok: 0,
  /** Something went wrong. */
  failed: 1,
  /** The command line or the configuration cannot be used. */
  usage: 2,
  /** Not done: it needs `--yes`, or this database is another's. */
  refused: 3,
  /** Done, and the answer is "no": what was checked is not as it should be. */
  checkFailed: 4,
} as const

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

export interface OptionSpec {
  readonly type: 'boolean' | 'string'
  readonly help: string
  /** What stands for the value in help: `<url>`. */
  readonly value?: string
}

export type OptionValues = Readonly<Record<string, string | boolean | undefined>>

export interface CommandContext {
  readonly values: OptionValues
  readonly settings: Settings
  /** Who runs this, for the audit log. */
  readonly user: string
  /** Installs signal handlers: the first SIGINT or SIGTERM aborts the signal, a later one ends the process. */
  readonly stopSignal: () => AbortSignal
  /** A line for people, on stderr. */
  readonly note: (text: string) => void
  /** Data before the result, to stdout as it is, for commands that go on. */
  readonly out: (text: string) => void
  /** Whether stdout is a terminal that can be drawn on. */
  readonly isTerminal: boolean
  /** The words that start this program again, without those of the command line. */
  readonly program: readonly string[]
}

export interface CommandResult {
  /** For people. Printed to stdout without `--json`. */
  readonly text: string
  /** For programs. Printed to stdout as one line of JSON with `--json`. */
  readonly data: unknown
  /** @default exitCodes.ok */
  readonly exitCode?: ExitCode
}

export interface Command {
  readonly summary: string
  /** Further lines of help. */
  readonly details?: readonly string[]
  /** The one word that may follow the command, as `<name>` in help; it is among the values by this name. */
  readonly argument?: string
  readonly options: Readonly<Record<string, OptionSpec>>
  /** The sentence for a database role that may not do it. @default who may operate the schema */
  readonly whoMay?: (names: { readonly schema: string; readonly service?: string | undefined }) => string
  run(context: CommandContext): Promise<CommandResult>
}
