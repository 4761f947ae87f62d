"""Small breakages of one source text: each is the text with one comparison, constant or statement changed."""

from __future__ import annotations

import ast

import msgspec

_PAIRS = ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **dict(_PAIRS),
    **{other: one for one, other in _PAIRS},
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
_REMOVABLE = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)


class Breakage(msgspec.Struct, frozen=True):
    line: int  # line in the original text
    before: str
    after: str  # the piece of code, and what stands in its place
    text: str  # the whole text with it; comments are lost


def count_breakages(source: str) -> int:
    """Return in how many ways a module is broken; what has no effect on a run is left out."""
    return len(_candidates(ast.parse(source)))


def breakage_at(source: str, place: int) -> Breakage:
    tree = ast.parse(source)
    node = _candidates(tree)[place]
    line, before = node.lineno, ast.unparse(node)
    after = _break(tree, node)
    return Breakage(line, before, after, ast.unparse(ast.fix_missing_locations(tree)) + "\n")


def _candidates(tree: ast.Module) -> list[ast.expr | ast.stmt]:
    """Return the nodes that are to be broken, each once."""
    skipped: set[int] = set()
    found: list[ast.expr | ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped |= {id(each) for each in ast.walk(node)}
        for hint in ("annotation", "returns"):
            if (noted := getattr(node, hint, None)) is not None:
                skipped |= {id(each) for each in ast.walk(noted)}
        if id(node) not in skipped and isinstance(node, (ast.expr, ast.stmt)) and _is_breakable(node):
            found.append(node)
    return sorted(found, key=lambda each: (each.lineno, each.col_offset))


def _is_breakable(node: ast.expr | ast.stmt) -> bool:
    match node:
        case ast.Compare(ops=[op]):
            return type(op) in _COMPARISONS
        case ast.BinOp(op=op):
            return type(op) in _ARITHMETIC
        case ast.Constant(value=bool() | int() | float()):
            return True
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            return False
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return True
    return isinstance(node, _REMOVABLE)


def _break(tree: ast.Module, node: ast.expr | ast.stmt) -> str:
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [_COMPARISONS[type(op)]()]
        case ast.BinOp(op=operator):
            node.op = _ARITHMETIC[type(operator)]()
        case ast.BoolOp(op=joint):
            node.op = ast.Or() if isinstance(joint, ast.And) else ast.And()
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(number) | float(number)):
            node.value = number + 1
        case ast.UnaryOp(operand=operand):
            _replace(tree, node, operand)
            return ast.unparse(operand)
        case _:
            nothing = ast.copy_location(ast.Pass(), node)
            _replace(tree, node, nothing)
            return "pass"
    return ast.unparse(node)


def _replace(tree: ast.Module, old: ast.AST, new: ast.AST) -> None:
    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Replacing().visit(tree)
