/**
 * The help texts, made from the table of commands: what is not in the table is not in the help, and the other way round.
 */
import { exitCodes, type Command, type OptionSpec } from './command.ts'
import { globalOptions } from './parse-command.ts'

/** Help for the whole program, or for the commands that begin with some words. */
export function overview(commands: Readonly<Record<string, Command>>, words: string): string {
  const listed = Object.entries(commands).filter(([name]) => words === '' || name.startsWith(`${words} `))
  return [
    `Usage: waybill ${words === '' ? '<command>' : `${words} <command>`} [options]`,
    '',
    'Commands:',
    ...columns(listed.map(([name, { summary }]) => [name, summary])),
    '',
    'Options:',
    ...optionLines(globalOptions),
    '',
    'Data goes to stdout, the rest to stderr. Exit codes:',
    ...columns([
      [String(exitCodes.ok), 'done'],
      [String(exitCodes.failed), 'failed'],
      [String(exitCodes.usage), 'the command line or the configuration cannot be used'],
      [String(exitCodes.refused), 'refused: needs --yes, or the database is of another service or deployment'],
      [String(exitCodes.checkFailed), 'checked, and not as it should be'],
    ]),
  ].join('\n')
}

/** Help for one command. */
export function commandHelp(words: string, command: Command): string {
  return [
    `Usage: waybill ${words}${command.argument === undefined ? '' : ` <${command.argument}>`} [options]`,
    '',
    `${command.summary}.`,
    ...(command.details ?? []),
    '',
    'Options:',
    ...optionLines({ ...command.options, ...globalOptions }),
  ].join('\n')
}

function optionLines(options: Readonly<Record<string, OptionSpec>>): string[] {
  return columns(
    Object.entries(options).map(([name, { value, help }]) => [`--${name}${value === undefined ? '' : ` ${value}`}`, help]),
  )
}

function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length))
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`)
}
