/**
 * The frame around every command: parses, runs, prints, and turns errors into messages and exit codes.
 *
 * It knows the process only through `CliWorld`, so that tests can be the process. Passwords are taken out of every
 * message; data is printed as it is, because a script that somebody will run must not be touched.
 */
import { errorMessage, isWaybillError, type ErrorCode } from '../core/errors.ts'
import { redactSecrets } from '../core/redact.ts'
import { explainForbidden } from '../postgres/connect-failure.ts'
import { packageVersion } from '../postgres/schema/migration-files.ts'
import { exitCodes, type Command, type CommandContext, type CommandResult, type ExitCode } from './frame/command.ts'
import { commands } from './commands.ts'
import { commandHelp, overview } from './frame/help.ts'
import { parseLine } from './frame/parse-command.ts'
import { terminalJson, terminalText } from './frame/text-table.ts'
import { readSettings } from './frame/settings.ts'
import { whoMayOperate } from '../ops/connect/role-hints.ts'

export interface CliWorld {
  /** The words after the program's name. */
  readonly line: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly folder: string
  readonly user: string
  out(text: string): void
  err(text: string): void
  stopSignal(): AbortSignal
  /** @default false */
  readonly isTerminal?: boolean
  /** The words that start this program again. @default [] */
  readonly program?: readonly string[]
}

/** Runs one command line; never throws. */
export async function runCli(world: CliWorld): Promise<ExitCode> {
  const flags = { json: world.line.includes('--json'), verbose: world.line.includes('--verbose') }
  const err = (text: string): void => world.err(`${terminalText(redactSecrets(text))}\n`)
  try {
    const { words, command, values } = parseLine(world.line, commands)
    const answer = (text: string, data: unknown): void =>
      world.out(`${flags.json ? terminalJson(data) : terminalText(text.trimEnd())}\n`)
    if (values['version'] === true) {
      answer(packageVersion(), { version: packageVersion() })
      return exitCodes.ok
    }
    if (values['help'] === true) {
      const text = command === undefined ? overview(commands, words) : commandHelp(words, command)
      answer(text, { help: text })
      return exitCodes.ok
    }
    if (command === undefined) {
      err(overview(commands, words))
      return exitCodes.usage
    }
    const settings = await readSettings({ values, env: world.env, folder: world.folder })
    const result = await runCommand(command, {
      values,
      settings,
      user: world.user,
      stopSignal: () => world.stopSignal(),
      note: err,
      out: (text) => world.out(text),
      isTerminal: world.isTerminal ?? false,
      program: world.program ?? [],
    })
    answer(result.text, result.data)
    return result.exitCode ?? exitCodes.ok
  } catch (error) {
    err(describe(error, flags))
    return isWaybillError(error) ? (codesOfErrors[error.code] ?? exitCodes.failed) : exitCodes.failed
  }
}

async function runCommand(command: Command, context: CommandContext): Promise<CommandResult> {
  try {
    return await command.run(context)
  } catch (error) {
    const { whoMay = whoMayOperate } = command
    throw explainForbidden(error, whoMay(context.settings.knownNames()))
  }
}

const codesOfErrors: Partial<Record<ErrorCode, ExitCode>> = {
  INVALID_OPTION: exitCodes.usage,
  REFUSED: exitCodes.refused,
  WRONG_DEPLOYMENT: exitCodes.refused,
}

function describe(error: unknown, { json, verbose }: { readonly json: boolean; readonly verbose: boolean }): string {
  const message = errorMessage(error)
  if (json) return terminalJson({ error: { code: isWaybillError(error) ? error.code : 'INTERNAL', message } })
  if (verbose && error instanceof Error)
    return [error, error.cause]
      .flatMap((each) => (each instanceof Error ? [each.stack ?? each.message] : []))
      .join('\ncaused by ')
  return message
}
