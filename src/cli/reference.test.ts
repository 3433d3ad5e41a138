import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'

import { commands } from './commands.ts'
import { commandHelp, overview } from './frame/help.ts'

const page = await readFile(new URL('../../docs/reference/cli.md', import.meta.url), 'utf8')

test('the reference page shows the help of every command as it is', () => {
  expect(page).toContain(`\n${overview(commands, '')}\n`)
  for (const words of Object.keys(commands)) expect(page).toContain(`\n## ${words}\n`)
  for (const [words, command] of Object.entries(commands)) expect(page).toContain(`\n${commandHelp(words, command)}\n`)
})

test('the reference page shows no command that does not exist', () => {
  const shown = [...page.matchAll(/^Usage: waybill ([a-z -]+?)(?: <[a-z-]+>)? \[options\]$/gm)].map((match) => match[1])
  expect(shown).toEqual(Object.keys(commands))
})
