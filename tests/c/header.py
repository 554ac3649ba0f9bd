"""A ctypes binding made of ropewalk.h alone, by libclang, as Rust's bindgen makes one."""
import ctypes
import pathlib

from clang.cindex import CursorKind, Diagnostic, Index, TypeKind

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include/ropewalk/ropewalk.h"

SCALARS = {
    TypeKind.VOID: None, TypeKind.BOOL: ctypes.c_bool, TypeKind.CHAR_S: ctypes.c_char,
    TypeKind.SCHAR: ctypes.c_byte, TypeKind.UCHAR: ctypes.c_ubyte, TypeKind.INT: ctypes.c_int,
    TypeKind.UINT: ctypes.c_uint, TypeKind.LONG: ctypes.c_long, TypeKind.ULONG: ctypes.c_ulong,
    TypeKind.DOUBLE: ctypes.c_double,
}


class Header:
    """Its functions, as (name, types of the arguments, their names); structures; enumerators.

    Throws where anything in it is what only a C compiler could use: macros with a meaning, inline functions,
    variable arguments, bit fields, unions.
    """

    def __init__(self, library=None, path=HEADER):
        unit = Index.create().parse(str(path), args=["-x", "c", "-std=c99", "-Wall", "-Wextra", "-pedantic"])
        told = [str(line) for line in unit.diagnostics if line.severity >= Diagnostic.Warning
                and "pragma once in main file" not in line.spelling]
        if told:
            raise ValueError("\n".join(told))
        self.structures, self.values, self.enumerations, self.functions = {}, {}, {}, {}
        self.library = library
        own = [cursor for cursor in unit.cursor.get_children()
               if cursor.location.file and cursor.location.file.name == str(path)]
        for cursor in own:
            if cursor.kind == CursorKind.ENUM_DECL:
                words = {word.spelling: word.enum_value for word in cursor.get_children()}
                self.enumerations[cursor.spelling] = words
                self.values.update(words)
            elif cursor.kind == CursorKind.STRUCT_DECL and cursor.is_definition():
                self.structure(cursor)
            elif cursor.kind == CursorKind.FUNCTION_DECL:
                self.function(cursor)
            elif cursor.kind not in (CursorKind.TYPEDEF_DECL, CursorKind.STRUCT_DECL):
                raise ValueError(f"{cursor.location}: a {cursor.kind} is nothing that other languages know")

    def type_of(self, clang_type):
        kind = clang_type.get_canonical()
        if kind.kind in SCALARS:
            return SCALARS[kind.kind]
        if kind.kind == TypeKind.ENUM:
            return ctypes.c_int
        if kind.kind == TypeKind.RECORD:
            return self.structures[kind.get_declaration().spelling]
        if kind.kind == TypeKind.POINTER:
            return self.pointer_to(kind.get_pointee().get_canonical())
        raise ValueError(f"no type of ctypes for {clang_type.spelling}")

    def pointer_to(self, kind):
        if kind.kind == TypeKind.FUNCTIONPROTO:
            return ctypes.CFUNCTYPE(self.type_of(kind.get_result()), *map(self.type_of, kind.argument_types()))
        if kind.kind == TypeKind.CHAR_S:
            return ctypes.c_char_p
        is_handle = kind.kind == TypeKind.RECORD and not kind.get_declaration().is_definition() \
            and kind.get_declaration().get_definition() is None
        if kind.kind == TypeKind.VOID or is_handle:
            return ctypes.c_void_p
        return ctypes.POINTER(self.type_of(kind))

    def structure(self, cursor):
        fields = list(cursor.type.get_fields())
        if any(field.is_bitfield() for field in fields):
            raise ValueError(f"{cursor.spelling} has bit fields")
        made = type(cursor.spelling, (ctypes.Structure,),
                    {"_fields_": [(field.spelling, self.type_of(field.type)) for field in fields]})
        assert ctypes.sizeof(made) == cursor.type.get_size(), cursor.spelling
        for field in fields:
            assert getattr(made, field.spelling).offset * 8 == cursor.type.get_offset(field.spelling), field.spelling
        self.structures[cursor.spelling] = made

    def function(self, cursor):
        if cursor.type.is_function_variadic() or cursor.is_definition():
            raise ValueError(f"{cursor.spelling} is no plain declaration")
        arguments = list(cursor.get_arguments())
        self.functions[cursor.spelling] = [(one.spelling, one.type) for one in arguments]
        if self.library:
            called = getattr(self.library, cursor.spelling)
            called.argtypes = [self.type_of(one.type) for one in arguments]
            called.restype = self.type_of(cursor.result_type)
            setattr(self, cursor.spelling, called)

    def new(self, structure, **members):
        """One of the structures that grow."""
        made = self.structures[structure](**members)
        made.size = ctypes.sizeof(made)
        return made
