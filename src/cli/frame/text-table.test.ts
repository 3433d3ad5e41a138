import { expect, test } from 'vitest'
import { oneLine, terminalJson, terminalText } from './text-table.ts'

const hostile = 'a\u001b[2Jb\u009b31mc\u202ed\u2066e\u007f\nf\tg'

test('text for a terminal has no control character and no change of direction, but keeps its lines', () => {
  expect(terminalText(hostile)).toBe('a [2Jb 31mc d e \nf\tg')
})

test('one line has no line ends either', () => {
  expect(oneLine(hostile)).toBe('a [2Jb 31mc d e  f g')
})

test('JSON for a terminal says the same as any, with escapes in place of what a terminal would act upon', () => {
  const text = terminalJson({ hostile })
  expect(text).not.toMatch(/\p{Cc}|\p{Cf}/u)
  expect(JSON.parse(text)).toEqual({ hostile })
})
