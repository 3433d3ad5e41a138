/**
 * Finds the command and its options in the words of a command line. A slip is answered with what was probably meant.
 */
import { parseArgs } from 'node:util'
import { WaybillError } from '../../core/errors.ts'
import { nearest } from '../../core/options.ts'
import type { Command, OptionSpec, OptionValues } from './command.ts'

/** Options that every command has. */
export const globalOptions: Readonly<Record<string, OptionSpec>> = {
  json: { type: 'boolean', help: 'print data as JSON' },
  verbose: { type: 'boolean', help: 'print the stack of an error' },
  help: { type: 'boolean', help: 'print this help' },
  version: { type: 'boolean', help: 'print the version' },
}

export interface ParsedLine {
  /** The words of the command: `migrate up`; empty or a beginning if none was named in full. */
  readonly words: string
  readonly command: Command | undefined
  readonly values: OptionValues
}

/** Parses the words after the program's name; throws INVALID_OPTION for what cannot be meant. */
export function parseLine(line: readonly string[], commands: Readonly<Record<string, Command>>): ParsedLine {
  const { words, rest } = findCommand(line, commands)
  const command = commands[words]
  const { word, options } = takeArgument(rest, command)
  const values = parseOptions(options, { ...command?.options, ...globalOptions }, words)
  return { words, command, values: word === undefined ? values : { ...values, ...word } }
}

/** Takes words as long as a command begins with them. */
function findCommand(
  line: readonly string[],
  commands: Readonly<Record<string, Command>>,
): { words: string; rest: readonly string[] } {
  const names = Object.keys(commands)
  let words = ''
  for (const [index, word] of line.entries()) {
    if (word.startsWith('-')) return { words, rest: line.slice(index) }
    const longer = words === '' ? word : `${words} ${word}`
    if (!names.some((name) => name === longer || name.startsWith(`${longer} `))) {
      if (commands[words]?.argument !== undefined) return { words, rest: line.slice(index) }
      if (commands[words] !== undefined) throw usage(`"${words}" takes no argument "${word}".`, words)
      const near = nearest(longer, [...names, ...names.map((name) => name.split(' ')[0] ?? '')])
      throw usage(`There is no command "${longer}".${near === undefined ? '' : ` Did you mean "${near}"?`}`, words)
    }
    words = longer
  }
  return { words, rest: [] }
}

/** The word that stands for the command's argument: it comes before the options. */
function takeArgument(
  rest: readonly string[],
  command: Command | undefined,
): { readonly word: OptionValues | undefined; readonly options: readonly string[] } {
  const [first] = rest
  if (command?.argument === undefined || first === undefined || first.startsWith('-')) return { word: undefined, options: rest }
  return { word: { [command.argument]: first }, options: rest.slice(1) }
}

function parseOptions(words: readonly string[], specs: Readonly<Record<string, OptionSpec>>, command: string): OptionValues {
  const options = Object.fromEntries(Object.entries(specs).map(([name, { type }]) => [name, { type }]))
  const { tokens } = parseArgs({ args: [...words], options, strict: false, allowPositionals: true, tokens: true })
  const values: Record<string, string | boolean> = {}
  for (const token of tokens) {
    if (token.kind === 'positional') throw usage(`Unexpected argument "${token.value}".`, command)
    if (token.kind !== 'option') continue
    const spec = specs[token.name]
    if (spec === undefined) {
      const near = nearest(token.name, Object.keys(specs))
      throw usage(`Unknown option ${token.rawName}.${near === undefined ? '' : ` Did you mean --${near}?`}`, command)
    }
    values[token.name] = valueOf(token, spec, command)
  }
  return values
}

interface OptionToken {
  readonly rawName: string
  readonly value: string | undefined
  readonly inlineValue: boolean | undefined
}

function valueOf({ rawName, value, inlineValue }: OptionToken, spec: OptionSpec, command: string): string | boolean {
  if (spec.type === 'boolean') {
    if (value !== undefined) throw usage(`${rawName} takes no value.`, command)
    return true
  }
  if (value === undefined || (inlineValue !== true && value.startsWith('-')))
    throw usage(`${rawName} needs a value: ${rawName} ${spec.value ?? '<value>'}.`, command)
  // A variable of the shell that is not set: taken for "not given", another database could be meant than the one that was named.
  if (value === '') throw usage(`${rawName} is empty. Give it a value, or leave it out.`, command)
  return value
}

function usage(problem: string, words: string): WaybillError {
  return new WaybillError(
    'INVALID_OPTION',
    `${problem} See: ${['waybill', words, '--help'].filter((word) => word !== '').join(' ')}`,
  )
}
